//! The phase of a pod, computed from its containers.

use k8s_openapi::api::core::v1 as api;

use crate::{ContainerKind, ContainerState, ContainerStatus, Pod, PodRuntimeStatus};

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not every container has started yet.
    Pending,
    /// Every container was started, and at least one runs or will be restarted.
    Running,
    /// Every container exited with code 0, and none will be restarted.
    Succeeded,
    /// Every container exited, at least one with a failure, or the agent terminated the pod.
    Failed,
}

impl PodPhase {
    /// The name as in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            PodPhase::Pending => "Pending",
            PodPhase::Running => "Running",
            PodPhase::Succeeded => "Succeeded",
            PodPhase::Failed => "Failed",
        }
    }

    /// The phase of a status; `None` if it has none, or one that a node does not set.
    pub fn of(status: &api::PodStatus) -> Option<Self> {
        let name = status.phase.as_deref()?;
        let all = [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed];
        all.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Whether the pod will never run again.
    pub fn is_terminal(self) -> bool {
        matches!(self, PodPhase::Succeeded | PodPhase::Failed)
    }
}

/// Whether the status has a terminal phase: the pod will never run again.
pub fn is_terminal(status: &api::PodStatus) -> bool {
    PodPhase::of(status).is_some_and(PodPhase::is_terminal)
}

/// When a container that exited is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Whatever its exit code.
    Always,
    /// If its exit code is not 0.
    OnFailure,
    /// Never.
    Never,
}

impl Restart {
    /// The part of the pod's `restartPolicy` that applies to its regular containers.
    pub fn of(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that exited with this code is started again.
    pub fn applies_to(self, exit_code: i32) -> bool {
        self == Self::Always || self == Self::OnFailure && exit_code != 0
    }
}

/// The phase that follows from the containers alone.
pub(crate) fn observed(pod: &Pod, status: &PodRuntimeStatus) -> PodPhase {
    let restart = Restart::of(pod);
    if let Some(phase) = init_phase(status, restart) {
        return phase;
    }
    let expected = pod.spec.as_ref().map_or(0, |s| s.containers.len());
    let tally = Tally::of(status);
    let seen = tally.waiting + tally.running + tally.succeeded + tally.failed;
    match restart {
        _ if seen < expected || tally.waiting > 0 => PodPhase::Pending,
        _ if tally.running > 0 || status.starts_over => PodPhase::Running,
        Restart::Always => PodPhase::Running,
        _ if tally.failed == 0 => PodPhase::Succeeded,
        Restart::OnFailure => PodPhase::Running,
        Restart::Never => PodPhase::Failed,
    }
}

/// The phase of a pod that was stopped for good: it has failed unless every container succeeded.
pub(super) fn stopped(pod: &Pod, status: &PodRuntimeStatus) -> PodPhase {
    let expected = pod.spec.as_ref().map_or(0, |s| s.containers.len());
    let tally = Tally::of(status);
    let all_well = tally.failed == 0 && tally.succeeded == expected && expected > 0;
    if all_well { PodPhase::Succeeded } else { PodPhase::Failed }
}

#[derive(Default)]
struct Tally {
    waiting: usize,
    running: usize,
    succeeded: usize,
    failed: usize,
}

impl Tally {
    fn of(status: &PodRuntimeStatus) -> Self {
        let mut tally = Self::default();
        for container in status.containers.iter().filter(|c| c.kind == ContainerKind::Regular) {
            match (&container.state, &container.last_exit) {
                (ContainerState::Running { .. }, _) => tally.running += 1,
                (ContainerState::Exited(exit), _) | (_, Some(exit)) => match exit.exit_code {
                    0 => tally.succeeded += 1,
                    _ => tally.failed += 1,
                },
                (ContainerState::Waiting { .. }, None) => tally.waiting += 1,
            }
        }
        tally
    }
}

/// The phase while the init containers determine it: not all are done, or one failed for good.
fn init_phase(status: &PodRuntimeStatus, restart: Restart) -> Option<PodPhase> {
    if has_regular_started(status) {
        return None;
    }
    let mut init = status.containers.iter().filter(|c| c.kind == ContainerKind::Init);
    if restart == Restart::Never && init.any(|c| code(c).is_some_and(|code| code != 0)) {
        return Some(PodPhase::Failed);
    }
    (!status.containers.iter().all(is_init_done)).then_some(PodPhase::Pending)
}

/// Whether any regular container has started: the pod is initialized from then on, whatever its sidecars do.
pub(super) fn has_regular_started(status: &PodRuntimeStatus) -> bool {
    let mut regular = status.containers.iter().filter(|c| c.kind == ContainerKind::Regular);
    regular.any(|c| !matches!((&c.state, &c.last_exit), (ContainerState::Waiting { .. }, None)))
}

/// Whether this container lets the next one start; regular containers always do.
pub(super) fn is_init_done(container: &ContainerStatus) -> bool {
    match container.kind {
        ContainerKind::Init => code(container) == Some(0),
        ContainerKind::Sidecar => container.started,
        ContainerKind::Regular | ContainerKind::Ephemeral => true,
    }
}

/// The code that decides, of a container that has exited.
fn code(container: &ContainerStatus) -> Option<i32> {
    let ContainerState::Exited(exit) = &container.state else { return None };
    Some(exit.deciding_code(container.kind))
}
