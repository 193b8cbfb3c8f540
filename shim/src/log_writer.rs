//! Writes the log of a container under a service manager.
//!
//! Its standard input holds the container's [two pipes](crate::log_pipes). Lines go to the log file and to standard
//! error, which is the journal. It exits when all writers have closed their ends; on SIGTERM it first writes the
//! remaining output.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use winddown_shared::WallClock;

use super::log::Stream;
use super::output::{LAST_CHUNKS, Output, Source};
use crate::log_pipes::in_input;
use crate::order::LogTarget;

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
    match Writer::new(target, wall).and_then(|mut writer| writer.follow()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "winddown: the log is not written: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Writer<'a> {
    output: Output<'a>,
    asked: SignalFd,
}

impl<'a> Writer<'a> {
    fn new(target: LogTarget, wall: &'a WallClock) -> Result<Self, String> {
        let [out, error] = in_input(io::stdin().as_fd()).map_err(|e| e.to_string())?;
        let sources = vec![Source::new(out, Stream::Out)?, Source::new(error, Stream::Err)?];
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.thread_block().map_err(|e| e.to_string())?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let asked = SignalFd::with_flags(&signals, flags).map_err(|e| e.to_string())?;
        Ok(Self { output: Output::new(sources, target, wall), asked })
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
            if is_asked {
                self.output.copy(LAST_CHUNKS, to_journal);
                self.output.finish(to_journal);
                return Ok(());
            }
            self.output.copy(1, to_journal);
        }
        Ok(())
    }
}

/// Writes the lines to the journal without the prefix of the log format. A missing journal is ignored.
fn to_journal(text: &[u8]) {
    let mut plain = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        plain.extend_from_slice(line.splitn(4, |&byte| byte == b' ').nth(3).unwrap_or_default());
    }
    if !plain.is_empty() {
        let _ = io::stderr().write_all(&plain);
    }
}
