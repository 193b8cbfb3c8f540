//! A pod's containers as the pod workers and `status` see them.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{ContainerKind, ContainerState, ContainerStatus, PodRuntimeStatus};

use super::pod::{Container, PodState};
use crate::plan::{self, Restart, Seen};

/// The pod now. The caller holds its lock.
pub(crate) fn status(state: &PodState) -> PodRuntimeStatus {
    let rules = state.pod.as_ref().map(plan::rules).unwrap_or_default();
    let seen = state.seen(rules.len(), tokio::time::Instant::now());
    let will_start = !state.stopping && !plan::plan(&rules, &seen).done;
    let initialized = is_initialized(state);
    let containers = state
        .containers
        .iter()
        .enumerate()
        .map(|(i, container)| {
            let restart = match rules.get(i) {
                Some(rule) if will_start => rule.restart,
                _ => Restart::Never,
            };
            one(state, container, restart, seen.get(i).copied(), initialized)
        })
        .collect();
    PodRuntimeStatus { containers, started_at: state.started_at, ips: Vec::new() }
}

fn one(
    state: &PodState,
    container: &Container,
    restart: Restart,
    seen: Option<Seen>,
    initialized: bool,
) -> ContainerStatus {
    let end = container.run.as_ref().and_then(|run| run.end.as_ref());
    let is_restarting = end.is_some_and(|end| {
        restart.applies_to(end.exit.exit_code)
            && matches!(seen, Some(Seen::Ended { wait, .. }) if !wait.is_zero())
    });
    let now = match (&container.run, end) {
        (None, _) => waiting_to_start(container.kind, initialized),
        (Some(run), None) => ContainerState::Running { started_at: run.started_at },
        (Some(_), Some(_)) if is_restarting => {
            let wait = match seen {
                Some(Seen::Ended { wait, .. }) => wait,
                _ => std::time::Duration::ZERO,
            };
            ContainerState::Waiting {
                reason: "CrashLoopBackOff".into(),
                message: format!("started again in {} s", wait.as_secs() + 1),
            }
        }
        (Some(_), Some(end)) => ContainerState::Exited(end.exit.clone()),
    };
    let running = container.run.as_ref().filter(|run| run.end.is_none());
    let last_exit =
        if is_restarting { end.map(|e| e.exit.clone()) } else { container.last_exit.clone() };
    let attempt = container.run.as_ref().map(|run| run.attempt);
    ContainerStatus {
        name: container.name.clone(),
        kind: container.kind,
        id: id(state, container, attempt),
        image: image(state, container).unwrap_or_default(),
        state: now,
        last_exit,
        restart_count: attempt.unwrap_or(0),
        started: running.is_some_and(|run| run.started),
        ready: match container.kind {
            // An init container is ready once it has done its work.
            ContainerKind::Init => end.is_some_and(|e| e.exit.exit_code == 0),
            _ => running.is_some_and(|run| run.ready && run.started),
        },
    }
}

fn waiting_to_start(kind: ContainerKind, initialized: bool) -> ContainerState {
    let reason = match kind {
        ContainerKind::Regular if initialized => "ContainerCreating",
        _ => "PodInitializing",
    };
    ContainerState::Waiting { reason: reason.into(), message: String::new() }
}

fn is_initialized(state: &PodState) -> bool {
    state.containers.iter().all(|c| match (c.kind, &c.run) {
        (ContainerKind::Regular, _) => true,
        (ContainerKind::Sidecar, Some(run)) => run.started,
        (ContainerKind::Init, Some(run)) => run.end.as_ref().is_some_and(|e| e.exit.exit_code == 0),
        (_, None) => false,
    })
}

fn id(state: &PodState, container: &Container, attempt: Option<u32>) -> String {
    match (attempt, &state.pod) {
        (Some(attempt), Some(pod)) => {
            format!("process://{}/{}/{attempt}", pod.uid(), container.name)
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
