//! Ends everything a command left behind.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::members;
use crate::procfs::{self, Process};

/// Kills every descendant of this process and takes their exit statuses, until none is left.
///
/// A process whose parent dies becomes a child of ours (subreaper), so killing until there are no
/// children misses none, in whatever session it is. Blocks on a process that even SIGKILL does not
/// end; the agent sees that the supervisor still lives and names it.
pub(crate) fn end_all(proc_root: &Path, cgroups: &[PathBuf]) {
    let me = nix::unistd::getpid();
    // Without children there is nothing to look for, and /proc need not be read: the usual case.
    while has_children() {
        // One write ends the whole group, faster than it can fork.
        members::kill(cgroups);
        let mut found = 0;
        for seen in procfs::descendants(proc_root, me.as_raw()).into_iter().flatten() {
            // Held by what was seen of it: its pid may be a stranger's by now.
            let Ok(Some(process)) = Process::open(proc_root, seen) else { continue };
            found += usize::from(process.signal(Signal::KILL).is_ok_and(|sent| sent));
        }
        if found > 0 {
            // They are dying: at least one of our children or of theirs ends, so this returns.
            let _ = waitpid(None, None);
        }
    }
}

/// Takes the status of every child that has ended; `main`'s, if it was among them.
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

/// Takes the statuses of dead children and says whether a living one is left.
fn has_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}
