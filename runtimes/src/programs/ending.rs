//! Which containers are to end, and when each is asked.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;
use winddown_engine::plan;
use winddown_engine::stopping::{self, KILLED, was_killed};
use winddown_shared::{ContainerKind, Grace, Pod, PodStopped, StoppedContainer};
use winddown_shim::order::Command;

use super::config::ProcessConfig;
use super::hook::{self, Handler};
use super::pod::{Container, PodEntry, PodState};
use super::{Context, Driver, launch};

/// A container to end.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: Arc<str>,
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
    /// A sidecar: its turn comes when those that may need it are gone.
    pub(crate) waits_for_others: bool,
    pub(crate) pre_stop: Option<PreStop>,
    pub(crate) signal: Signal,
}

/// A container's preStop hook.
#[derive(Clone, Debug)]
pub(crate) struct PreStop {
    pod: Pod,
    handler: Handler,
    as_container: Command,
}

/// All containers that run.
pub(crate) fn targets(config: &ProcessConfig, state: &PodState) -> Vec<Target> {
    let running = state.containers.iter().filter(|c| c.is_running());
    running.filter_map(|container| Target::of(config, state.pod.as_ref(), container)).collect()
}

/// Resolves when the container is to be asked to end: its preStop hook is done and its turn has come.
/// Dropping the future ends what the hook runs.
pub(crate) async fn due<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    target: &Target,
    grace: &Grace,
    last_call: Duration,
) {
    let name = &*target.name;
    if let Some(PreStop { pod, handler, as_container }) = &target.pre_stop {
        let run = |left| hook::run(context, (pod, name), handler, as_container, Some(left));
        stopping::pre_stop(entry.uid(), name, grace.clone(), last_call, run).await;
    }
    if target.waits_for_others {
        stopping::turn(entry, name, grace.clone(), last_call).await;
    }
}

/// Notes that a container is asked to end now. False if it has ended, or was asked before: by an earlier
/// stop, or by the agent before this one.
pub(crate) fn ask_now(state: &mut PodState, target: &Target) -> bool {
    let Some(run) = state.attempt(&target.name, target.attempt) else { return false };
    if run.end.is_some() {
        return false;
    }
    let is_first = run.signalled_at.is_none();
    let asked = *run.signalled_at.get_or_insert_with(Instant::now);
    if let Some(record) = &mut state.stop {
        record.signalled_at.get_or_insert(asked);
    }
    is_first
}

/// Notes that a container is killed now. False if it has ended.
pub(crate) fn kill_now(state: &mut PodState, target: &Target) -> bool {
    let run = state.attempt(&target.name, target.attempt).filter(|run| run.end.is_none());
    let Some(run) = run else { return false };
    run.forced = true;
    true
}

/// How it went, from what every stop of this pod noted.
pub(crate) fn finish(state: &mut PodState) -> PodStopped {
    let mut record = state.stop.take().unwrap_or_default();
    let stopped = record.finish(|name| {
        let run = state.container(name)?.run.as_ref()?;
        let exit = run.end.as_ref().map(|end| &end.exit);
        let exit_code = exit.map_or(KILLED, |exit| exit.exit_code);
        let forced = run.forced || exit.is_some_and(was_killed);
        Some(StoppedContainer { name: Arc::clone(name), exit_code, forced })
    });
    state.stop = Some(record);
    stopped
}

// === impl Target ===

impl Target {
    pub(crate) fn is_same_run(&self, other: &Self) -> bool {
        self.id == other.id
    }

    fn of(config: &ProcessConfig, pod: Option<&Pod>, container: &Container) -> Option<Self> {
        let run = container.run.as_ref()?;
        let found = pod.and_then(|pod| Some((pod, plan::find(pod, &container.name)?)));
        let pre_stop = found.as_ref().and_then(|(pod, found)| {
            let hook = found.container.lifecycle.as_ref()?.pre_stop.as_ref()?;
            let handler = Handler::of(hook, found.container, &config.node)?;
            let as_container = launch::command(config, pod, found).unwrap_or_default();
            Some(PreStop { pod: (*pod).clone(), handler, as_container })
        });
        Some(Self {
            name: Arc::clone(&container.name),
            id: Arc::clone(&run.id),
            attempt: run.attempt,
            waits_for_others: container.kind == ContainerKind::Sidecar,
            // Asked before (an earlier stop was abandoned): it has had its hook.
            pre_stop: pre_stop.filter(|_| run.signalled_at.is_none()),
            signal: launch::stop_signal(found.map(|(_, found)| found.container)),
        })
    }
}
