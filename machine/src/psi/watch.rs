//! Waits for triggers.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::mpsc;

use super::arm::{self, Armed, Hold, PsiTrigger, Unarmed};
use crate::usage::CgroupTree;

/// The capacity for unread alarms; more carry no news.
const ALARMS: usize = 16;
/// The thread needs next to nothing.
const STACK: usize = 64 * 1024;

/// Whose pressure is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PsiPlace {
    /// The whole machine: `/proc/pressure/memory`.
    Node,
    /// A cgroup by its path from the root of the unified hierarchy, and all below it.
    Cgroup(String),
}

/// `the whole machine`, `cgroup /edge`.
impl fmt::Display for PsiPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("the whole machine"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
        }
    }
}

/// What a trigger told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsiAlarm {
    /// The trigger with this number fired.
    Pressed(usize),
    /// The trigger with this number is gone with its cgroup. Set it again if the cgroup comes back.
    Gone(usize),
}

/// The triggers and the thread that waits for them. Dropping it removes them.
#[derive(Debug)]
pub struct PsiWatch {
    alarms: mpsc::Receiver<PsiAlarm>,
    /// Its end wakes the thread, which then ends.
    _stop: OwnedFd,
}

impl PsiWatch {
    /// Sets triggers. Returns the watch (none if no trigger could be set) and the result of each,
    /// in the order of the list; the index is the alarm's number. Does a little file work, and does
    /// not block for long.
    pub fn start(
        proc: &std::path::Path,
        cgroup: &std::path::Path,
        triggers: &[(PsiPlace, PsiTrigger)],
    ) -> (Option<Self>, Vec<Result<Armed, Unarmed>>) {
        let tree = CgroupTree::find(cgroup);
        let mut files = Vec::new();
        let mut outcomes = Vec::new();
        for (number, (place, trigger)) in triggers.iter().enumerate() {
            let path = match place {
                PsiPlace::Node => Some(proc.join("pressure/memory")),
                PsiPlace::Cgroup(path) => tree.memory_pressure(path),
            };
            outcomes.push(set(path, cgroup, *trigger).map(|(file, armed)| {
                files.push((number, file));
                armed
            }));
        }
        if files.is_empty() {
            return (None, outcomes);
        }
        match wait_in_thread(files) {
            Ok(watch) => (Some(watch), outcomes),
            Err(source) => {
                let mut source = Some(source);
                for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                    let source = source.take().unwrap_or_else(|| io::Error::other("as before"));
                    *outcome = Err(Unarmed::NoWaiting { source });
                }
                (None, outcomes)
            }
        }
    }

    /// The next alarm; none when all triggers are gone. Several that came since the last call may have
    /// become one. Cancel-safe.
    pub async fn next(&mut self) -> Option<PsiAlarm> {
        self.alarms.recv().await
    }
}

fn set(
    path: Option<PathBuf>,
    cgroup: &std::path::Path,
    trigger: PsiTrigger,
) -> Result<(File, Armed), Unarmed> {
    let Some(path) = path else { return Err(Unarmed::Missing { path: cgroup.to_owned() }) };
    arm::arm(&path, trigger)
}

/// Starts the thread.
pub(super) fn wait_in_thread<F>(files: Vec<(usize, F)>) -> io::Result<PsiWatch>
where
    F: std::os::fd::AsFd + Send + 'static,
{
    let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
    let (sender, alarms) = mpsc::channel(ALARMS);
    let work = move || wait(files, &stopped, &sender);
    std::thread::Builder::new().name("pressure".to_owned()).stack_size(STACK).spawn(work)?;
    Ok(PsiWatch { alarms, _stop: stop })
}

/// Until the other end of `stopped` is closed or no trigger is left.
fn wait<F: std::os::fd::AsFd>(
    mut files: Vec<(usize, F)>,
    stopped: &OwnedFd,
    sender: &mpsc::Sender<PsiAlarm>,
) {
    while !files.is_empty() {
        let mut asked: Vec<PollFd<'_>> =
            files.iter().map(|(_, file)| PollFd::new(file, PollFlags::PRI)).collect();
        asked.push(PollFd::new(stopped, PollFlags::IN));
        match poll(&mut asked, None) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let told: Vec<PollFlags> = asked.iter().map(PollFd::revents).collect();
        drop(asked);
        if told.last().is_some_and(|stop| !stop.is_empty()) {
            return;
        }
        let mut told = told.into_iter();
        files.retain(|(number, _)| {
            let said = told.next().unwrap_or(PollFlags::empty());
            let is_gone = said.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
            if is_gone {
                // Must arrive: it is the last alarm of this trigger.
                let _ = sender.blocking_send(PsiAlarm::Gone(*number));
            } else if said.contains(PollFlags::PRI) {
                // Full: the reader has unread alarms already.
                let _ = sender.try_send(PsiAlarm::Pressed(*number));
            }
            !is_gone
        });
    }
}

/// What a node that wants to act before its memory is gone asks for: 70 ms lost by anyone within half a
/// second.
impl Default for PsiTrigger {
    fn default() -> Self {
        Self {
            hold: Hold::Some,
            stall: Duration::from_millis(70),
            window: Duration::from_millis(500),
        }
    }
}
