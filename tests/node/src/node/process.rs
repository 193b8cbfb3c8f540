//! A process of a node, for tests that kill or suspend it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, identified by a pidfd: never another one that reused its PID.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process with this PID on the host, if it exists.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Kills the process. It is no error if it is gone already.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::KILL)
    }

    /// Suspends the process until [`Self::go_on`].
    ///
    /// # Errors
    /// Same as for [`Self::kill`].
    pub fn hang(&self) -> io::Result<()> {
        self.send(Signal::STOP)
    }

    /// Resumes the process.
    ///
    /// # Errors
    /// Same as for [`Self::kill`].
    pub fn go_on(&self) -> io::Result<()> {
        self.send(Signal::CONT)
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// Same as for [`Self::kill`].
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Process> for OwnedFd {
    /// The pidfd, which becomes readable when the process exits.
    fn from(process: Process) -> Self {
        process.0
    }
}
