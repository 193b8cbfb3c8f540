//! Signals a container's first process without the runtime.
//!
//! A runtime delivers a signal by starting a program for each container (`runc kill`); with a hundred at
//! once the last one gets its SIGTERM half a second late, and a hung runtime delivers none. The agent
//! holds a pidfd of the process anyway, which can never refer to another process.
//!
//! This is done only where it has the same effect: for an ordinary process of this kernel
//! ([`handlers`](super::handlers)) in the container's own cgroup with a known stop signal. In all other cases the
//! runtime is asked.

use std::fs::File;
use std::io;
use std::sync::Arc;

use nix::sys::signal::Signal as Named;
use rustix::process::{Signal, pidfd_send_signal};
use winddown_host::{cgroups_of, kernel, ready::Ready};

/// The stop signal of an image that specifies none.
pub(crate) const DEFAULT_SIGNAL: &str = "SIGTERM";

/// A container's first process.
#[derive(Debug)]
pub(crate) struct Direct {
    process: Arc<Ready>,
    pid: i32,
    stop: Signal,
}

/// Keeps a container's mount namespace alive until it is dropped. Dropping it may block.
///
/// An exiting process tears down its namespaces before the kernel reports its exit, and for a mount
/// namespace that means waiting for an RCU grace period. With eighty containers exiting at once these
/// waits queue up for half a second, during which the next group of pods is not signalled.
#[derive(Debug)]
#[must_use]
pub(crate) struct HeldMounts(#[allow(dead_code, reason = "what counts is that it is open")] File);

impl HeldMounts {
    /// Holds the mount namespace of this process. Returns `None` if it has exited, or if the agent lacks
    /// `CAP_SYS_PTRACE`: then its exit is reported later. Reads no file; blocks for no longer than opening one in /proc
    /// does.
    pub(super) fn of(pid: i32, process: &Ready) -> Option<Self> {
        let held = kernel::open(format!("/proc/{pid}/ns/mnt")).ok()?;
        // If the process has exited, the PID may be another process's by now.
        let is_over = process.is_readable();
        (!is_over).then_some(Self(held))
    }
}

impl Direct {
    /// `process` is an ordinary one, and `signal` the container's stop signal as written in specs and images. Returns
    /// `None` if the runtime has to be asked. Reads one small file of /proc.
    pub(super) fn of(
        process: &Arc<Ready>,
        pid: i32,
        id: &str,
        signal: Option<&str>,
    ) -> Option<Self> {
        let stop = parse(signal?)?;
        // The pidfd was opened before this check: if the PID had been reused, this would not be the
        // container's cgroup.
        cgroups_of(pid)?.contains(id).then(|| Self { process: Arc::clone(process), pid, stop })
    }

    /// The process and its PID.
    pub(super) fn first_process(&self) -> (&Ready, i32) {
        (&self.process, self.pid)
    }

    /// Sends the stop signal.
    ///
    /// # Errors
    /// The process may not be signalled, or has exited.
    pub(super) fn ask(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&*self.process, self.stop)?)
    }

    /// Holds the process's mount namespace, if it has not exited ([`HeldMounts::of`]).
    pub(super) fn hold_mounts(&self) -> Option<HeldMounts> {
        HeldMounts::of(self.pid, &self.process)
    }

    /// Kills the process, and with it everything in its PID namespace.
    ///
    /// # Errors
    /// The process may not be signalled, or has exited.
    pub(super) fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&*self.process, Signal::KILL)?)
    }
}

/// Parses a signal as specs and images write it: `SIGQUIT`, `QUIT`, `3`.
fn parse(text: &str) -> Option<Signal> {
    let named: Named = match text.parse::<i32>() {
        Ok(number) => number.try_into().ok()?,
        Err(_) if text.starts_with("SIG") => text.parse().ok()?,
        Err(_) => format!("SIG{text}").parse().ok()?,
    };
    Signal::from_named_raw(named as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_signal_is_read_in_every_way_it_is_written() {
        for text in ["SIGQUIT", "QUIT", "3"] {
            assert_eq!(parse(text), Some(Signal::QUIT), "{text}");
        }
        for text in ["", "SIG", "SIGNOPE", "RTMIN+3", "99", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
