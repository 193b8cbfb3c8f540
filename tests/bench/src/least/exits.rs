//! What the kernel tells of the pods' exits.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clock;

/// When the kernel told of the last exit of each group.
#[derive(Debug, Default)]
pub(super) struct Told {
    ordinary: Option<Duration>,
    critical: Option<Duration>,
}

/// A thread that waits for exits and does nothing else.
pub(super) struct Exits(JoinHandle<io::Result<Told>>);

// === impl Exits ===

impl Exits {
    /// Waits for the exits of pods, the first `critical` of which are critical.
    pub(super) fn watch(pods: &[(usize, Pid)], critical: usize) -> io::Result<Self> {
        let open = |(number, pid): &(usize, Pid)| {
            Ok((*number < critical, pidfd_open(*pid, PidfdFlags::empty())?))
        };
        let pods = pods.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        Ok(Self(std::thread::spawn(|| wait(pods))))
    }

    pub(super) fn join(self) -> io::Result<Told> {
        self.0.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
    }
}

fn wait(mut pods: Vec<(bool, OwnedFd)>) -> io::Result<Told> {
    let mut told = Told::default();
    while !pods.is_empty() {
        let exited: Vec<bool> = {
            let each =
                pods.iter().map(|(_, pod)| PollFd::from_borrowed_fd(pod.as_fd(), PollFlags::IN));
            let mut each: Vec<_> = each.collect();
            poll(&mut each, None)?;
            each.iter().map(|pod| !pod.revents().is_empty()).collect()
        };
        let now = Some(clock::now());
        let mut exited = exited.into_iter();
        pods.retain(|(is_critical, _)| {
            let has_exited = exited.next() == Some(true);
            match (has_exited, is_critical) {
                (true, true) => told.critical = now,
                (true, false) => told.ordinary = now,
                (false, _) => {}
            }
            !has_exited
        });
    }
    Ok(told)
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinary, critical } = self;
        for (what, when) in [("ordinary", ordinary), ("critical", critical)] {
            if let Some(when) = when {
                writeln!(f, "{what} {}", when.as_nanos())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Exits, Pid};
    use crate::clock;

    #[test]
    fn the_last_exit_of_each_group_is_noted_when_the_kernel_tells_of_it() {
        let before = clock::now();
        let mut children: Vec<_> =
            (0..2).map(|_| Command::new("sleep").arg("100").spawn().unwrap()).collect();
        let pid = |n: usize| Pid::from_raw(i32::try_from(children[n].id()).unwrap()).unwrap();
        let exits = Exits::watch(&[(0, pid(0)), (1, pid(1))], 1).unwrap();
        children[1].kill().unwrap();
        children[1].wait().unwrap();
        let between = clock::now();
        children[0].kill().unwrap();
        children[0].wait().unwrap();
        let told = exits.join().unwrap();
        let (ordinary, critical) = (told.ordinary.unwrap(), told.critical.unwrap());
        assert!(before < ordinary && between < critical, "{before:?} {between:?} {told:?}");
    }
}
