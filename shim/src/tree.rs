//! Kills everything that a command left behind.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::members;
use crate::procfs::{self, Process};

/// Kills every descendant of this process and reaps it, until none is left.
///
/// A process whose parent dies becomes a child of this one (a subreaper), so killing until there are no children misses
/// none, whatever its session. Blocks while a process survives even SIGKILL; the agent notices that the supervisor
/// still runs and reports it.
pub(crate) fn end_all(proc_root: &Path, cgroups: &[PathBuf]) {
    let me = nix::unistd::getpid();
    // Usually there are no children, and /proc need not be read.
    while has_children() {
        // One write kills the whole group, faster than it can fork.
        members::kill(cgroups);
        let mut found = 0;
        for seen in procfs::descendants(proc_root, me.as_raw()).into_iter().flatten() {
            // Opened by its identity: its pid may have been reused.
            let Ok(Some(process)) = Process::open(proc_root, seen) else { continue };
            found += usize::from(process.signal(Signal::KILL).is_ok_and(|sent| sent));
        }
        if found > 0 {
            // They are dying: at least one child, or a child of theirs, exits, so this returns.
            let _ = waitpid(None, None);
        }
    }
}

/// Reaps every child that has exited. Returns the status of `main` if it was among them.
pub(crate) fn reap(main: Pid) -> Option<WaitStatus> {
    let mut status = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return status,
            Ok(ended @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))) => {
                if pid == main {
                    status = Some(ended);
                }
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return status,
        }
    }
}

/// Reaps exited children. Returns whether a running one is left.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}
