//! Kills everything that a command left behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{Timespec, poll};
use rustix::process::Signal;

use winddown_shared::Retry;

use crate::members;
use crate::procfs::{self, Process};

/// Kills every descendant of this process and reaps it, until none is left.
///
/// A process whose parent dies becomes a child of this one (a subreaper), so killing until there are no children misses
/// none, whatever its session. Blocks while a process survives even SIGKILL; the agent notices that the supervisor
/// still runs and reports it.
pub(crate) fn end_all(proc_root: &Path, cgroups: &[PathBuf]) {
    end_all_pausing(proc_root, cgroups, |time| {
        if let Ok(time) = Timespec::try_from(time) {
            let _ = poll(&mut [], Some(&time));
        }
    });
}

fn end_all_pausing(proc_root: &Path, cgroups: &[PathBuf], mut pause: impl FnMut(Duration)) {
    let mut retries = Retry::CHILDREN.backoff();
    let me = nix::unistd::getpid();
    // Usually there are no children, and /proc need not be read.
    while has_children() {
        // One write kills the whole group, faster than it can fork.
        members::kill(cgroups);
        let (mut found, mut refused) = (false, false);
        for seen in procfs::descendants(proc_root, me.as_raw()).into_iter().flatten() {
            // Opened by its identity: its pid may have been reused.
            let Ok(Some(process)) = Process::open(proc_root, seen) else { continue };
            match process.signal(Signal::KILL) {
                Ok(sent) => found |= sent,
                Err(_) => refused = true,
            }
        }
        if found && !refused {
            // They are dying: at least one child, or a child of theirs, exits, so this returns.
            let _ = waitpid(None, None);
        } else {
            // A set-user-ID program may not be signalled, or not even be visible.
            pause(retries.next_delay());
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_that_cannot_be_killed_is_waited_for_with_pauses() {
        // Nothing is visible here, as in a /proc that hides the processes of other users.
        let proc_root = tempfile::tempdir().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (mut input, mut pauses) = (child.stdin.take(), Vec::new());
        end_all_pausing(proc_root.path(), &[], |time| {
            pauses.push(time);
            if pauses.len() == 12 {
                // It exits by itself.
                drop(input.take());
            }
        });
        assert_eq!(pauses[..3], [1, 2, 4].map(Duration::from_millis));
        assert_eq!(pauses[11], Duration::from_secs(1));
        // It was reaped already.
        assert!(child.wait().is_err());
    }
}
