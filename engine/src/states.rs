//! Names of a container's state, for all runtimes.

use winddown_shared::{ContainerKind, ContainerState};

use crate::plan::{ContainerObservation, ContainerRule, Restart};

/// How far the newest run of a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// It has started, and its startup probe passed.
    pub started: bool,
    /// Its readiness probe passed.
    pub ready: bool,
    /// How it ended, if it has.
    pub exit_code: Option<i32>,
}

/// When the container at `place` is started again, given whether anything of its pod is.
pub fn restart(rules: &[ContainerRule], place: usize, will_start: bool) -> Restart {
    match rules.get(place) {
        Some(rule) if will_start => rule.restart,
        _ => Restart::Never,
    }
}

/// It waits to be started again.
pub fn crash_loop(seen: Option<ContainerObservation>) -> ContainerState {
    let wait = match seen {
        Some(ContainerObservation::Ended { wait, .. }) => wait,
        _ => std::time::Duration::ZERO,
    };
    ContainerState::Waiting {
        reason: "CrashLoopBackOff".into(),
        message: format!("started again in {} s", wait.as_secs() + 1),
    }
}

/// It has not run yet. `initialized` is what [`is_initialized`] says of its pod.
pub fn waiting_to_start(kind: ContainerKind, initialized: bool) -> ContainerState {
    let reason = match kind {
        ContainerKind::Regular if initialized => "ContainerCreating",
        _ => "PodInitializing",
    };
    ContainerState::Waiting { reason: reason.into(), message: String::new() }
}

/// Whether everything that runs before a pod's regular containers has done its work, or runs.
pub fn is_initialized(
    containers: impl IntoIterator<Item = (ContainerKind, Option<Progress>)>,
) -> bool {
    containers.into_iter().all(|(kind, run)| match (kind, run) {
        (ContainerKind::Regular, _) => true,
        (ContainerKind::Sidecar, Some(run)) => run.started,
        (ContainerKind::Init, Some(run)) => run.exit_code == Some(0),
        (_, None) => false,
    })
}

/// Whether a container counts as ready.
pub fn is_ready(kind: ContainerKind, run: Option<Progress>) -> bool {
    run.is_some_and(|run| match kind {
        // An init container is ready once it has done its work.
        ContainerKind::Init => run.exit_code == Some(0),
        _ => run.exit_code.is_none() && run.started && run.ready,
    })
}

#[cfg(test)]
mod tests {
    use ContainerKind::{Init, Regular, Sidecar};

    use super::*;

    const NEW: Progress = Progress { started: false, ready: false, exit_code: None };
    const UP: Progress = Progress { started: true, ready: true, exit_code: None };
    const DONE: Progress = Progress { exit_code: Some(0), ..UP };
    const FAILED: Progress = Progress { exit_code: Some(1), ..UP };

    #[test]
    fn a_pod_is_initialized_when_its_init_containers_are_done_and_its_sidecars_run() {
        for (containers, expected) in [
            (&[(Regular, None)][..], true),
            (&[(Init, None), (Regular, None)], false),
            (&[(Init, Some(UP))], false),
            (&[(Init, Some(FAILED))], false),
            (&[(Init, Some(DONE)), (Sidecar, Some(NEW))], false),
            (&[(Init, Some(DONE)), (Sidecar, Some(UP)), (Regular, Some(NEW))], true),
        ] {
            assert_eq!(is_initialized(containers.iter().copied()), expected, "{containers:?}");
        }
    }

    #[test]
    fn a_container_is_ready_while_it_runs_and_an_init_container_when_it_is_done() {
        for (kind, run, expected) in [
            (Regular, None, false),
            (Regular, Some(NEW), false),
            (Regular, Some(UP), true),
            (Sidecar, Some(UP), true),
            (Regular, Some(DONE), false),
            (Init, Some(UP), false),
            (Init, Some(DONE), true),
            (Init, Some(FAILED), false),
        ] {
            assert_eq!(is_ready(kind, run), expected, "{kind:?} {run:?}");
        }
    }
}
