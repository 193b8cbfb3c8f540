//! One process of a node, for tests that do it harm.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, and never another one that got its number.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process that the host calls `pid`, if it is there.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Kills it at once. One that is gone already is no error.
    ///
    /// # Errors
    /// The operating system's.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    /// Stops it where it stands, until [`Self::go_on`].
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn hang(&self) -> io::Result<()> {
        self.send(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn go_on(&self) -> io::Result<()> {
        self.send(Signal::CONT)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Process> for OwnedFd {
    /// The pidfd: readable once the process has ended.
    fn from(process: Process) -> Self {
        process.0
    }
}
