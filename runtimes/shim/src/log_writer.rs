//! Writes the log of a container under a service manager.
//!
//! Its standard input holds the container's [two pipes](crate::log_pipes). Lines go to the log file and to standard
//! error, which is the journal. It exits when all writers have closed their ends; on SIGTERM it first writes the
//! remaining output.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use winddown_shared::WallClock;

use super::log::Stream;
use super::output::{ContainerOutput, LAST_CHUNKS, OutputPipe};
use crate::journal_copy::JournalCopy;
use crate::log_pipes::in_input;
use crate::order::LogTarget;
use crate::step::refused;

/// Writes the log `path` until there is nothing more to write. `rest` is the maximum size in bytes and the number of
/// files.
pub(crate) fn run(
    path: PathBuf,
    rest: impl Iterator<Item = OsString>,
    wall: &WallClock,
) -> ExitCode {
    let numbers: Vec<u64> = rest.filter_map(|word| word.to_str()?.parse().ok()).collect();
    let &[max_bytes, max_files] = numbers.as_slice() else { return ExitCode::from(2) };
    let target = LogTarget { path, max_bytes, max_files: u32::try_from(max_files).unwrap_or(1) };
    let (input, journal) = (io::stdin(), JournalCopy::new(io::stderr()));
    let writer = Writer::new(input.as_fd(), journal, target, wall);
    match writer.and_then(|mut writer| writer.follow()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "winddown: the log is not written: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Writer<'a, F> {
    output: ContainerOutput<'a>,
    journal: JournalCopy<F>,
    asked: SignalFd,
}

impl<'a, F: AsFd> Writer<'a, F> {
    fn new(
        input: BorrowedFd<'_>,
        journal: JournalCopy<F>,
        target: LogTarget,
        wall: &'a WallClock,
    ) -> Result<Self, String> {
        let [out, error] = in_input(input).map_err(|e| e.to_string())?;
        let sources =
            vec![OutputPipe::new(out, Stream::Out)?, OutputPipe::new(error, Stream::Err)?];
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.thread_block().map_err(refused("cannot block signals"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let asked =
            SignalFd::with_flags(&signals, flags).map_err(refused("cannot listen for SIGTERM"))?;
        Ok(Self { output: ContainerOutput::new(sources, target, wall), journal, asked })
    }

    fn follow(&mut self) -> Result<(), String> {
        while !self.output.sources.is_empty() {
            let mut fds = vec![PollFd::new(&self.asked, PollFlags::IN)];
            fds.extend(self.output.sources.iter().map(|s| PollFd::new(&s.pipe, PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let is_asked = !fds[0].revents().is_empty();
            drop(fds);
            let Self { output, journal, .. } = self;
            if is_asked {
                output.copy(LAST_CHUNKS, |lines| journal.copy(lines));
                output.finish(|lines| journal.copy(lines));
                return Ok(());
            }
            output.copy(1, |lines| journal.copy(lines));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use winddown_shared::WallTime;

    use super::*;
    use crate::log_pipes::as_input;

    #[test]
    fn a_journal_that_hangs_holds_up_no_application_and_the_file_has_every_line() {
        const LINES: usize = 16 * 1024;
        let line = |number: usize| format!("{number:01023}\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let target = LogTarget { path: path.clone(), max_bytes: u64::MAX, max_files: 1 };
        let (journal, _hangs) = UnixStream::pair().unwrap();
        let ((out, mut to_out), (error, to_error)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let input = as_input(out.as_fd(), error.as_fd()).unwrap();
        drop((out, error, to_error));
        let writer = thread::spawn(move || {
            let wall = WallClock::new(WallTime::default);
            let writer = Writer::new(input.as_fd(), JournalCopy::new(journal), target, &wall);
            writer.and_then(|mut writer| writer.follow())
        });
        let (done, application) = mpsc::channel();
        thread::spawn(move || {
            (0..LINES).for_each(|number| to_out.write_all(line(number).as_bytes()).unwrap());
            done.send(()).unwrap();
        });
        let waited = application.recv_timeout(Duration::from_secs(60));
        waited.expect("the application stands still");
        writer.join().unwrap().unwrap();
        let log = std::fs::read_to_string(&path).unwrap();
        let written: Vec<_> = log.lines().filter_map(|line| line.split(' ').nth(3)).collect();
        assert_eq!(written.len(), LINES);
        assert!((0..LINES).all(|number| written[number] == line(number).trim_end()));
    }
}
