//! Terminates a container's processes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::Signal;
use tokio::time::timeout;
use winddown_engine::driver::StopTarget;
use winddown_engine::pod;
use winddown_shared::{PodUid, Retry, RuntimeError};
use winddown_shim::members;
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::ProcessIdentity;

use super::Context;
use crate::programs::failed;
use crate::programs::pod::{PodEntry, Run};

/// Waits until no start is in progress. A supervisor that does not respond is killed.
pub(super) async fn settle(context: &Context, entry: &PodEntry) -> Result<(), RuntimeError> {
    let after = context.config.kill_timeout;
    for patience in Retry::START.within(after) {
        if timeout(patience, pod::started(entry)).await.is_ok() {
            return Ok(());
        }
        for supervisor in &entry.lock().own {
            let _ = supervisor.signal(Signal::KILL);
        }
    }
    let what = format!("waiting for a start under way of pod {}", entry.uid());
    Err(RuntimeError::Timeout { what, after })
}

/// Signals the container's main process, without any other system call.
pub(super) fn signal_main(entry: &PodEntry, target: &StopTarget, signal: Signal) {
    let mut state = entry.lock();
    let run = state.run(&target.name, &target.id).filter(|run| run.end.is_none());
    if let Some(main) = run.and_then(|run| run.own.main.as_ref()) {
        // An error means that the process cannot be signalled; it will be killed by other means.
        let _ = main.signal(signal);
    }
}

/// Sends SIGKILL to the container's main process and, with a cgroup, to everything in it. The supervisor notices the
/// exit of the main process and kills everything else. Later rounds search for the remaining processes. If only the
/// supervisor remains, it hangs (a dead disk, say) and is killed too: the container is gone with it.
pub(super) async fn kill(
    context: &Arc<Context>,
    entry: &PodEntry,
    target: &StopTarget,
    round: u32,
) {
    let Some(held) = Held::of(entry, target) else { return };
    if round == 0 {
        signal_main(entry, target, Signal::KILL);
        members::kill(&held.cgroups);
        return;
    }
    let search = held.work(context, |held, context| held.kill_by_search(context));
    let is_alone = search.await.unwrap_or_default();
    if is_alone && round > 1 {
        let _ = held.supervisor.signal(Signal::KILL);
    }
}

/// Whether only the supervisor of a container that is not known to have exited remains. False if that is unknown.
pub(super) async fn is_alone(
    context: &Arc<Context>,
    entry: &PodEntry,
    name: &Arc<str>,
    attempt: u32,
) -> bool {
    let held = {
        let mut state = entry.lock();
        state.attempt(name, attempt).and_then(|run| Held::of_run(entry.uid(), name, run))
    };
    let Some(held) = held else { return false };
    let search = held.work(context, |held, context| held.remaining(context));
    search.await.is_ok_and(|left| left.is_ok_and(|left| left.is_empty()))
}

/// Describes the processes of a container that survive SIGKILL.
pub(super) async fn unkillable_error(
    context: &Arc<Context>,
    entry: &PodEntry,
    target: &StopTarget,
) -> RuntimeError {
    let plain = || failed(format!("container {} survives SIGKILL", target.name));
    let Some(held) = Held::of(entry, target) else { return plain() };
    let described = held.work(context, |held, context| held.survivors(context)).await;
    described.unwrap_or_else(|_| plain())
}

/// What identifies the processes of a running container.
#[derive(Clone)]
struct Held {
    uid: PodUid,
    name: Arc<str>,
    supervisor: Arc<Process>,
    cgroups: Vec<PathBuf>,
}

impl Held {
    /// None if the container has exited.
    fn of(entry: &PodEntry, target: &StopTarget) -> Option<Self> {
        let mut state = entry.lock();
        Self::of_run(entry.uid(), &target.name, state.run(&target.name, &target.id)?)
    }

    fn of_run(uid: &PodUid, name: &Arc<str>, run: &Run) -> Option<Self> {
        let supervisor = run.own.supervisor.as_ref().filter(|_| run.end.is_none())?;
        let (supervisor, cgroups) = (Arc::clone(supervisor), run.own.cgroups.clone());
        Some(Self { uid: uid.clone(), name: Arc::clone(name), supervisor, cgroups })
    }

    /// Runs blocking work off the async threads.
    async fn work<T: Send + 'static>(
        &self,
        context: &Arc<Context>,
        work: impl FnOnce(&Self, &Context) -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        let (held, context) = (self.clone(), Arc::clone(context));
        tokio::task::spawn_blocking(move || work(&held, &context)).await
    }

    /// Searches for the remaining processes and kills them: the supervisor may be stopped or hung. The supervisor
    /// itself is spared. Returns whether only the supervisor remains.
    fn kill_by_search(&self, context: &Context) -> bool {
        let _ = self.supervisor.signal(Signal::CONT);
        let proc_root = &context.config.proc_root;
        // Those below it also where it is unknown which others there are.
        let below = procfs::descendants(proc_root, self.supervisor.pid());
        let found = below.into_iter().chain(self.remaining(context)).flatten();
        for seen in found {
            // Opened by its identity: a pid that was reused meanwhile belongs to another process.
            if let Ok(Some(process)) = Process::open(proc_root, seen) {
                let _ = process.signal(Signal::KILL);
            }
        }
        self.remaining(context).is_ok_and(|left| left.is_empty())
    }

    fn remaining(&self, context: &Context) -> io::Result<Vec<ProcessIdentity>> {
        let proc_root = &context.config.proc_root;
        let mut left = procfs::descendants(proc_root, self.supervisor.pid())?;
        left.extend(procfs::marked(proc_root, (self.uid.as_str(), &self.name), &self.cgroups)?);
        left.sort_unstable();
        left.dedup();
        Ok(left)
    }

    fn survivors(&self, context: &Context) -> RuntimeError {
        let left = self.remaining(context).unwrap_or_default();
        let mut left: Vec<i32> = left.into_iter().map(|seen| seen.pid).collect();
        if left.is_empty() {
            left.push(self.supervisor.pid());
        }
        let named = left.iter().map(|&pid| match procfs::stat(&context.config.proc_root, pid) {
            Ok(Some(stat)) => format!("{pid} (state {})", stat.state),
            _ => pid.to_string(),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let (name, uid) = (&self.name, &self.uid);
        failed(format!("container {name} of pod {uid} survives SIGKILL: process {named}"))
    }
}
