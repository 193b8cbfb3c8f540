//! A pod's containers as the pod workers and `status` see them.

use k8s_openapi::api::core::v1 as api;
use winddown_engine::plan::{self, ContainerObservation, Restart};
use winddown_engine::probing::ProbeState;
use winddown_engine::states::{self, Progress};
use winddown_shared::{ContainerState, ContainerStatus, PodRuntimeStatus};

use super::pod::{Container, PodState, Run};

/// The pod now, with ids of this scheme. The caller holds its lock.
pub(crate) fn status(state: &PodState, scheme: &str) -> PodRuntimeStatus {
    let rules = state.pod.as_ref().map(plan::rules).unwrap_or_default();
    let seen = state.seen(&rules, tokio::time::Instant::now());
    let will_start = !state.stopping && !plan::plan(&rules, &seen).done;
    let runs = state.containers.iter().enumerate().map(|(i, c)| (c.kind, run(c, seen.get(i))));
    let initialized = states::is_initialized(runs.map(|(kind, run)| (kind, run.map(progress))));
    let containers = state
        .containers
        .iter()
        .enumerate()
        .map(|(i, container)| {
            let restart = states::restart(&rules, i, will_start);
            one((state, scheme), container, restart, seen.get(i).copied(), initialized)
        })
        .collect();
    PodRuntimeStatus { containers, started_at: state.started_at, ips: Vec::new() }
}

fn one(
    (state, scheme): (&PodState, &str),
    container: &Container,
    restart: Restart,
    seen: Option<ContainerObservation>,
    initialized: bool,
) -> ContainerStatus {
    let newest = run(container, seen.as_ref());
    let end = newest.and_then(|run| run.end.as_ref());
    let is_restarting = end.is_some_and(|end| {
        restart.applies_to(end.exit.exit_code)
            && matches!(seen, Some(ContainerObservation::Ended { wait, .. }) if !wait.is_zero())
    });
    let now = match (newest, end) {
        (None, _) => states::waiting_to_start(container.kind, initialized),
        (Some(run), None) => ContainerState::Running { started_at: run.started_at },
        (Some(_), Some(_)) if is_restarting => states::crash_loop(seen),
        (Some(_), Some(end)) => ContainerState::Exited(end.exit.clone()),
    };
    let running = container.run.as_ref().filter(|run| run.end.is_none());
    let past = container.run.as_ref().filter(|_| is_restarting || newest.is_none());
    let past = past.and_then(|run| run.end.as_ref()).map(|end| &end.exit);
    let last_exit = past.or(container.last_exit.as_ref()).cloned();
    let attempt = container.run.as_ref().map(|run| run.attempt);
    ContainerStatus {
        name: container.name.clone(),
        kind: container.kind,
        id: id((state, scheme), container, attempt),
        image: image(state, container).unwrap_or_default(),
        state: now,
        last_exit,
        restart_count: attempt.unwrap_or(0),
        started: running.is_some_and(|run| run.probe_state.started),
        ready: states::is_ready(container.kind, newest.map(progress)),
    }
}

/// The newest run; none if that was before the pod began anew and the container is started again.
fn run<'a>(container: &'a Container, seen: Option<&ContainerObservation>) -> Option<&'a Run> {
    container.run.as_ref().filter(|_| seen != Some(&ContainerObservation::Never))
}

fn progress(run: &Run) -> Progress {
    let exit_code = run.end.as_ref().map(|end| end.exit.exit_code);
    let ProbeState { started, ready, .. } = run.probe_state;
    Progress { started, ready, exit_code }
}

fn id((state, scheme): (&PodState, &str), container: &Container, attempt: Option<u32>) -> String {
    match (attempt, &state.pod) {
        (Some(attempt), Some(pod)) => {
            format!("{scheme}://{}/{}/{attempt}", pod.uid(), container.name)
        }
        _ => String::new(),
    }
}

fn image(state: &PodState, container: &Container) -> Option<String> {
    let spec = state.pod.as_ref()?.spec.as_ref()?;
    let named = |c: &&api::Container| c.name == *container.name;
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers).find(named)?.image.clone()
}
