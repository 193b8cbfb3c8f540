//! The copy of a container's output in the journal, which never waits for the journal.
//!
//! The log file is what counts. Its writer is the only process that empties the container's pipes, so a journal that
//! hangs must not hold it up: 64 KiB later the application would stand still. Each send is told not to wait, which says
//! nothing about the socket that systemd connected and may have given to others. Lines that do not fit are counted, and
//! the next line that fits is preceded by their number.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// The journal's end of a container's output. Without a journal standard error is no socket, and nothing is copied.
pub(crate) struct JournalCopy<F> {
    socket: F,
    /// What is left of a line of which the journal has the beginning.
    begun: Vec<u8>,
    /// Lines that were not copied and not reported yet.
    lost: u64,
}

impl<F: AsFd> JournalCopy<F> {
    pub(crate) fn new(socket: F) -> Self {
        Self { socket, begun: Vec::new(), lost: 0 }
    }

    /// Copies lines of the log, without the prefix of its format.
    pub(crate) fn copy(&mut self, log: &[u8]) {
        let mut text = Vec::with_capacity(self.begun.len() + log.len());
        text.append(&mut self.begun);
        let begun = usize::from(!text.is_empty());
        if self.lost > 0 {
            text.extend(format!("winddown: {} lines were not copied here\n", self.lost).bytes());
        }
        let owed = text.len();
        for line in log.split_inclusive(|&byte| byte == b'\n') {
            text.extend_from_slice(line.splitn(4, |&byte| byte == b' ').nth(3).unwrap_or_default());
        }
        let sent = self.send(&text);
        // What was begun is completed; otherwise the next line would become its end.
        let is_between_lines = if sent == 0 { begun == 0 } else { text[sent - 1] == b'\n' };
        let rest = &text[sent..];
        let end = match is_between_lines {
            true => 0,
            false => rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |end| end + 1),
        };
        self.begun.extend_from_slice(&rest[..end]);
        // The number counts as reported once its line has been begun.
        let first = owed.max(sent + end);
        if sent + end >= owed {
            self.lost = 0;
        }
        self.lost += lines(&text[first..]);
    }

    /// Sends the text as far as the journal takes it now. Returns the number of bytes.
    fn send(&self, text: &[u8]) -> usize {
        let mut sent = 0;
        while sent < text.len() {
            match send(&self.socket, &text[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        sent
    }
}

fn lines(text: &[u8]) -> u64 {
    text.split_inclusive(|&byte| byte == b'\n').fold(0, |count, _| count + 1)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn each_line_is_copied_whole_or_counted_and_the_count_precedes_the_next_that_fits() {
        let (journal, mut reader) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        let mut copy = JournalCopy::new(journal);
        let (mut written, mut read, mut number) = (0, Vec::new(), 0_usize);
        let mut is_lossy = [false; 2];
        for round in 0..400 {
            let mut log = Vec::new();
            for _ in 0..round % 7 {
                // Lines of all lengths: some fill what is left of the socket, and are cut there.
                number += 1;
                let content = format!("{number}:{}", "x".repeat(number * 911 % 16_384));
                log.extend(format!("time stdout F {content}\n").bytes());
                written += 1;
            }
            copy.copy(&log);
            is_lossy[usize::from(copy.lost > 0)] = true;
            // Now and then the journal reads, and not always everything.
            let reads = if round % 40 == 39 { 1 + round / 40 } else { 0 };
            let mut chunk = [0; 30_000];
            for _ in 0..reads {
                match reader.read(&mut chunk) {
                    Ok(count) => read.extend_from_slice(&chunk[..count]),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
        }
        assert_eq!(is_lossy, [true; 2]);
        let unreported = copy.lost;
        reader.set_nonblocking(false).unwrap();
        let begun = copy.begun.clone();
        drop(copy);
        reader.read_to_end(&mut read).unwrap();
        read.extend(begun);
        let (mut copied, mut told) = (0, 0);
        for line in String::from_utf8(read).unwrap().lines() {
            let count = line.strip_prefix("winddown: ").and_then(|rest| rest.split(' ').next());
            if let Some(count) = count {
                told += count.parse::<u64>().unwrap();
                continue;
            }
            let (number, rest) = line.split_once(':').unwrap();
            let number: usize = number.parse().unwrap();
            assert_eq!(rest.len(), number * 911 % 16_384, "line {number} is cut");
            copied += 1;
            assert_eq!(number as u64, copied + told, "the count is where the lines are missing");
        }
        assert!(told > 0);
        assert_eq!(copied + told + unreported, written);
    }
}
