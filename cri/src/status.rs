//! A pod's containers as the pod workers and `status` see them.

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_engine::plan::{self, ContainerObservation, Restart};
use winddown_engine::probing::ProbeState;
use winddown_engine::states::{self, Progress};
use winddown_shared::{ContainerState, ContainerStatus, PodRuntimeStatus};

use super::pod::{Container, PodState, Run, Trouble};
use super::spec;

/// The pod now, with ids below `scheme`. The caller holds its lock.
pub(super) fn status(state: &PodState, scheme: &str) -> PodRuntimeStatus {
    let rules = state.pod.as_ref().map(plan::rules).unwrap_or_default();
    let seen = state.seen(&rules, Instant::now());
    let will_start = !state.stopping && !plan::plan(&rules, &seen).done;
    let progress = state.containers.iter().map(|c| (c.kind, c.run.as_ref().map(progress)));
    let initialized = states::is_initialized(progress);
    let containers = state
        .containers
        .iter()
        .enumerate()
        .map(|(i, container)| {
            let restart = states::restart(&rules, i, will_start);
            let id = match &container.run {
                Some(run) => format!("{scheme}://{}", run.id),
                None => String::new(),
            };
            let seen = seen.get(i).copied();
            ContainerStatus { id, ..one(state, container, restart, seen, initialized) }
        })
        .collect();
    PodRuntimeStatus { containers, started_at: state.started_at, ips: state.ips.clone() }
}

fn one(
    state: &PodState,
    container: &Container,
    restart: Restart,
    seen: Option<ContainerObservation>,
    initialized: bool,
) -> ContainerStatus {
    let run = container.run.as_ref();
    let real = run.filter(|run| !run.is_undone());
    let end = real.and_then(|run| run.end.as_ref());
    let will_restart = seen == Some(ContainerObservation::Outdated)
        || end.is_some_and(|end| restart.applies_to(end.exit.exit_code));
    let waits = matches!(seen, Some(ContainerObservation::Ended { wait, .. }) if !wait.is_zero());
    let trouble = container.trouble.as_ref().filter(|_| !state.stopping);
    let running = run.filter(|run| run.is_running());
    let now = match (running.and_then(|run| run.started_at), end, trouble) {
        (Some(started_at), ..) => ContainerState::Running { started_at },
        (None, None, Some(trouble)) => trouble.state(),
        (None, Some(_), Some(trouble)) if will_restart => trouble.state(),
        (None, Some(_), _) if will_restart && waits => states::crash_loop(seen),
        (None, Some(end), _) => ContainerState::Exited(end.exit.clone()),
        (None, None, None) => states::waiting_to_start(container.kind, initialized),
    };
    let is_waiting = matches!(now, ContainerState::Waiting { .. });
    let own_exit = end.filter(|_| is_waiting).map(|end| end.exit.clone());
    ContainerStatus {
        name: container.name.clone(),
        kind: container.kind,
        id: String::new(),
        // Its own, as long as it is there: the spec may name another one by now.
        image: run
            .and_then(|run| run.image.as_deref().map(str::to_owned))
            .or_else(|| image(state, container))
            .unwrap_or_default(),
        state: now,
        last_exit: own_exit.or_else(|| container.last_exit.clone()),
        restart_count: run.map_or(0, |run| run.attempt),
        started: running.is_some_and(|run| run.probe_state.started),
        ready: states::is_ready(container.kind, real.map(progress)),
    }
}

impl Trouble {
    fn state(&self) -> ContainerState {
        let message = self.message.clone();
        ContainerState::Waiting { reason: self.reason.into(), message }
    }
}

fn progress(run: &Run) -> Progress {
    let exit_code = run.end.as_ref().map(|end| end.exit.exit_code);
    let ProbeState { started, ready, .. } = run.probe_state;
    Progress { started, ready, exit_code }
}

fn image(state: &PodState, container: &Container) -> Option<String> {
    let found: spec::Found<'_> = spec::find(state.pod.as_ref()?, &container.name)?;
    let container: &k8s::Container = found.container;
    container.image.clone()
}
