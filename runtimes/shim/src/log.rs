//! Container output in the CRI log format, with rotation.
//!
//! `TIME STREAM TAG LINE`, where TAG is `F` for the end of a line and `P` for a part of a line longer than 16 KiB.
//! Files are rotated when the next write would exceed the limit: `0.log` becomes `0.log.1`, that becomes `0.log.2`, and
//! the oldest is removed.
//!
//! # Files of others
//! A pod may have the directory of all logs as a volume, so it may have replaced its log, or a directory above it, by a
//! link, a pipe or a device. A log is therefore opened, renamed and removed below the directory of all logs, where no
//! link is followed and nothing is waited for.
//!
//! # Limits
//! A failed write never affects the container. If the disk is full, output is dropped and counted, a partial line is
//! removed, and the next write that succeeds reports how much was lost.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use winddown_host::pod_logs::{NAMES, open, rotate};
use winddown_host::regular;
use winddown_shared::WallTime;

use crate::order::LogTarget;

/// The maximum output in one log line, in bytes; containerd and CRI-O use the same.
const MAX_LINE: usize = 16 * 1024;
/// How much of the end of a file is read for a termination message: two lines of the maximum length are complete in it.
const TAIL_READ_BYTES: u64 = 2 * (MAX_LINE as u64 + 128);
/// How much of the end of the log a termination message may take, in bytes and lines.
const TAIL_BYTES: usize = 2048;
const TAIL_LINES: usize = 80;

/// The two output streams of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Turns the bytes of one stream into log lines, in memory.
#[derive(Debug)]
pub struct StreamLines {
    stream: Stream,
    /// The line that is not complete yet; at most [`MAX_LINE`].
    pending: Vec<u8>,
}

/// A log file with rotation.
#[derive(Debug)]
pub struct LogFile {
    target: LogTarget,
    file: Option<File>,
    lost: Lost,
    tail: Tail,
}

#[derive(Debug, Default)]
struct Lost {
    lines: u64,
    bytes: u64,
    why: Option<io::Error>,
}

/// The last of the output, for `FallbackToLogsOnError`.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

// === impl StreamLines ===

impl StreamLines {
    /// Creates the state for a stream without output so far.
    pub fn new(stream: Stream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Appends the log lines that `bytes` completes to `out`; the rest is kept. Returns the number of lines.
    pub fn take(&mut self, mut bytes: &[u8], at: WallTime, out: &mut Vec<u8>) -> u64 {
        let mut lines = 0;
        while !bytes.is_empty() {
            let room = MAX_LINE - self.pending.len();
            // One byte more: a line of exactly the maximum length is complete if it ends right there.
            let window = &bytes[..bytes.len().min(room + 1)];
            if let Some(end) = window.iter().position(|&b| b == b'\n') {
                self.emit(&bytes[..end], b'F', at, out);
                bytes = &bytes[end + 1..];
                lines += 1;
            } else if bytes.len() > room {
                self.emit(&bytes[..room], b'P', at, out);
                bytes = &bytes[room..];
                lines += 1;
            } else {
                self.pending.extend_from_slice(bytes);
                bytes = &[];
            }
        }
        lines
    }

    /// Appends the last line, which no newline ended. Returns the number of lines.
    pub fn finish(&mut self, at: WallTime, out: &mut Vec<u8>) -> u64 {
        if self.pending.is_empty() {
            return 0;
        }
        self.emit(&[], b'F', at, out);
        1
    }

    fn emit(&mut self, rest: &[u8], tag: u8, at: WallTime, out: &mut Vec<u8>) {
        let stream = match self.stream {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        };
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{at} {stream} {} ", char::from(tag));
        out.append(&mut self.pending);
        out.extend_from_slice(rest);
        out.push(b'\n');
    }
}

// === impl LogFile ===

impl LogFile {
    /// Opens the log. If that fails, each write tries again.
    pub fn open(target: LogTarget) -> Self {
        let mut log = Self { target, file: None, lost: Lost::default(), tail: Tail::default() };
        if let Err(error) = log.reopen() {
            log.lost.why = Some(error);
        }
        log
    }

    /// Writes `text`, which consists of `lines` complete log lines.
    pub fn write(&mut self, text: &[u8], lines: u64, at: WallTime) {
        if text.is_empty() {
            return;
        }
        self.tail.keep(text);
        let outcome = self.announce_loss(at).and_then(|()| self.append(text));
        if let Err(error) = outcome {
            self.lost.lines += lines;
            self.lost.bytes += text.len() as u64;
            self.lost.why = Some(error);
        }
    }

    /// The end of the output without the log format: at most 80 lines and 2048 bytes.
    pub fn tail(&self) -> String {
        plain(&self.tail.0, self.tail.0.len() >= Tail::KEPT_BYTES)
    }

    fn announce_loss(&mut self, at: WallTime) -> io::Result<()> {
        if self.lost.lines == 0 {
            return Ok(());
        }
        let why = self.lost.why.as_ref().map_or_else(String::new, |e| format!(": {e}"));
        let note = format!(
            "{at} stderr F winddown: {} lines ({} bytes) of output are missing here{why}\n",
            self.lost.lines, self.lost.bytes
        );
        self.append(note.as_bytes())?;
        self.lost = Lost::default();
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        } else if self.is_full_with(text)? {
            self.rotate()?;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let before = file.metadata()?.len();
        file.write_all(text).inspect_err(|_| {
            // A partial line would make the next one unreadable.
            let _ = file.set_len(before);
        })
    }

    /// Whether the file would pass its limit. Its length is that on disk: another program may have emptied it.
    fn is_full_with(&self, text: &[u8]) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let length = file.metadata()?.len();
        Ok(length > 0 && length.saturating_add(text.len() as u64) > self.target.max_bytes)
    }

    fn rotate(&mut self) -> io::Result<()> {
        rotate(&self.target.path, self.target.max_files)?;
        self.file = None;
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        let (logs, name) = regular::split(&self.target.path, NAMES);
        let file = regular::append_below(logs, name, 0o640)?;
        self.file = Some(file);
        Ok(())
    }
}

// === impl Tail ===

impl Tail {
    /// More than the message needs, because the prefix of each line is removed later.
    const KEPT_BYTES: usize = TAIL_BYTES * 4;

    fn keep(&mut self, text: &[u8]) {
        if text.len() >= Self::KEPT_BYTES {
            self.0.clear();
            self.0.extend_from_slice(&text[text.len() - Self::KEPT_BYTES..]);
            return;
        }
        let over = (self.0.len() + text.len()).saturating_sub(Self::KEPT_BYTES);
        self.0.drain(..over);
        self.0.extend_from_slice(text);
    }
}

/// Returns the end of the log at `path` without the log format: at most 80 lines and 2048 bytes. Blocking.
///
/// # Errors
/// See [`open`]; also if the log cannot be read.
pub fn tail(path: &Path) -> io::Result<String> {
    let mut file = open(path)?;
    let begins = file.metadata()?.len().saturating_sub(TAIL_READ_BYTES);
    file.seek(SeekFrom::Start(begins))?;
    let mut bytes = Vec::new();
    file.take(TAIL_READ_BYTES).read_to_end(&mut bytes)?;
    // The first line has lost its head: it could be the content of any file.
    let cut = if begins == 0 {
        0
    } else {
        bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| end + 1)
    };
    Ok(plain(&bytes[cut..], false))
}

/// Removes the log format; what does not have it is left out. If the log `is_cut`, its first line has lost its head.
fn plain(log: &[u8], is_cut: bool) -> String {
    let all = String::from_utf8_lossy(log);
    let lines = all.lines().enumerate().filter_map(|(i, line)| match is_cut && i == 0 {
        true => Some(line),
        false => content(line),
    });
    let lines: Vec<&str> = lines.collect();
    let text = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    let mut from = text.len().saturating_sub(TAIL_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// The content of a line of a log, if the line is one.
fn content(line: &str) -> Option<&str> {
    let mut words = line.splitn(4, ' ');
    let (at, stream, tags) = (words.next()?, words.next()?, words.next()?);
    let is_whole = tags.split(':').next().is_some_and(|tag| matches!(tag, "F" | "P"));
    let is_line =
        is_whole && matches!(stream, "stdout" | "stderr") && at.parse::<WallTime>().is_ok();
    words.next().filter(|_| is_line)
}

#[cfg(test)]
mod tests;
