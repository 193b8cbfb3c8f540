//! The status of a pod's containers for the pod workers and `status`.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::status::Restart;
use winddown_shared::{
    ContainerKind, ContainerState, ContainerStatus, GoDuration, Pod, PodRuntimeStatus,
};

use crate::container_plan::{self, ContainerObservation};
use crate::pod::{Container, EnginePodState, Run, RunScope};
use crate::probing::ProbeState;

/// Returns the current status of the pod, with container ids `SCHEME://ID`. The caller holds its lock.
pub fn status<B: RunScope>(state: &EnginePodState<B>, scheme: &str) -> PodRuntimeStatus {
    let rules = state.pod.as_ref().map(B::rules).unwrap_or_default();
    let seen = state.seen(&rules, Instant::now());
    let will_start = !state.stopping && !container_plan::plan(&rules, &seen).done;
    let all: Vec<Shown<'_, B>> = state
        .containers
        .iter()
        .enumerate()
        .map(|(i, container)| {
            let seen = seen.get(i).copied();
            // From before the pod started over. As with the kubelet, the container shows its exit until it is started
            // again or its start fails.
            let is_past = will_start && seen == Some(ContainerObservation::Never);
            let run = container.run.as_ref().filter(|run| !run.undone);
            let restart = match rules.get(i) {
                Some(rule) if will_start => rule.restart,
                _ => Restart::Never,
            };
            Shown { container, run, is_past, seen, restart }
        })
        .collect();
    let initialized = is_initialized(all.iter().map(|one| {
        let counts = one.run.filter(|_| !one.is_past);
        (one.container.kind, counts.map(|run| progress(one.container.kind, run)))
    }));
    let containers = all.iter().map(|one| one.status(state, scheme, initialized)).collect();
    let mut status = PodRuntimeStatus::new(containers);
    status.starts_over = all.iter().any(Shown::says_nothing);
    status.started_at = state.started_at;
    status.ips.clone_from(&state.ips);
    status
}

/// A container whose status is reported.
struct Shown<'a, B: RunScope> {
    container: &'a Container<B>,
    /// The newest run that counts.
    run: Option<&'a Run<B>>,
    /// Whether the sandbox or boot of that run is gone, and the container will be started again.
    is_past: bool,
    seen: Option<ContainerObservation>,
    restart: Restart,
}

impl<B: RunScope> Shown<'_, B> {
    /// Whether it will be started again although its exit may say that it has done its work.
    fn says_nothing(&self) -> bool {
        let is_cut_short = |run: &Run<B>| run.cut_short && self.restart != Restart::Never;
        self.run.is_some_and(|run| self.is_past || is_cut_short(run))
    }

    fn status(
        &self,
        state: &EnginePodState<B>,
        scheme: &str,
        initialized: bool,
    ) -> ContainerStatus {
        let container = self.container;
        let newest = container.run.as_ref();
        let running = newest.filter(|run| run.is_running());
        let now = self.state(running, state, initialized);
        let is_waiting = matches!(now, ContainerState::Waiting { .. });
        let own_end =
            newest.filter(|run| is_waiting && !run.undone).and_then(|run| run.end.as_ref());
        // The image of the run, if known: the spec may name another one now.
        let image = newest.and_then(|run| run.image.as_ref()).or(container.image.as_ref());
        let mut status = ContainerStatus::new(container.name.clone(), container.kind, now);
        status.id = newest.map(|run| format!("{scheme}://{}", run.id)).unwrap_or_default();
        status.image = image.map(|image| image.to_string()).unwrap_or_default();
        status.image_id = newest.map(|run| run.image_id.to_string()).unwrap_or_default();
        status.last_exit = own_end.map(|end| &end.exit).or(container.last_exit.as_ref()).cloned();
        status.restart_count = newest.map_or(0, |run| run.attempt);
        status.started = running.is_some_and(|run| run.probe_state.started);
        status.ready = is_ready(container.kind, self.run.map(|run| progress(container.kind, run)));
        status
    }

    fn state(
        &self,
        running: Option<&Run<B>>,
        state: &EnginePodState<B>,
        initialized: bool,
    ) -> ContainerState {
        let end = self.run.and_then(|run| run.end.as_ref());
        let code = self.run.and_then(|run| run.deciding_code(self.container.kind));
        let will_restart = self.is_past
            || self.seen == Some(ContainerObservation::Outdated)
            || code.is_some_and(|code| self.restart.applies_to(code));
        let trouble = self.container.trouble.as_ref().filter(|_| !state.stopping);
        match (running.and_then(|run| run.started_at), end, trouble) {
            (Some(started_at), ..) => ContainerState::Running { started_at },
            (None, None, Some(trouble)) => trouble.state(),
            (None, Some(_), Some(trouble)) if will_restart => trouble.state(),
            (None, Some(end), _) => match self.seen {
                Some(ContainerObservation::Ended { wait, .. })
                    if will_restart && !wait.is_zero() =>
                {
                    crash_loop(&self.container.name, state.pod.as_ref(), end.backoff)
                }
                _ => ContainerState::Exited(end.exit.clone()),
            },
            (None, None, None) => waiting_to_start(self.container.kind, initialized),
        }
    }
}

/// The progress of a container's newest run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    /// Whether it has started, and its startup probe passed.
    started: bool,
    /// Whether its readiness probe passed.
    ready: bool,
    /// The exit code that decides, if it has exited.
    exit_code: Option<i32>,
}

fn progress<B: RunScope>(kind: ContainerKind, run: &Run<B>) -> Progress {
    let exit_code = run.deciding_code(kind);
    let ProbeState { started, ready, .. } = &run.probe_state;
    Progress { started: *started, ready: *ready, exit_code }
}

/// The state of a container that waits to be restarted, in the kubelet's words.
fn crash_loop(name: &str, pod: Option<&Pod>, backoff: Duration) -> ContainerState {
    let backoff =
        GoDuration::try_from(backoff).map_or_else(|_| format!("{backoff:?}"), |d| d.to_string());
    let pod = pod.map(|pod| pod.pod_ref().kubelet_title()).unwrap_or_default();
    let message = format!("back-off {backoff} restarting failed container={name} pod={pod}");
    ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message }
}

/// The state of a container that has not run yet. `initialized` is the result of [`is_initialized`].
fn waiting_to_start(kind: ContainerKind, initialized: bool) -> ContainerState {
    let reason = match kind {
        ContainerKind::Regular | ContainerKind::Ephemeral if initialized => "ContainerCreating",
        _ => "PodInitializing",
    };
    ContainerState::Waiting { reason: reason.into(), message: String::new() }
}

/// Whether all init containers have succeeded and all sidecars have started.
fn is_initialized(containers: impl IntoIterator<Item = (ContainerKind, Option<Progress>)>) -> bool {
    containers.into_iter().all(|(kind, run)| match (kind, run) {
        (ContainerKind::Regular | ContainerKind::Ephemeral, _) => true,
        (ContainerKind::Sidecar, Some(run)) => run.started,
        (ContainerKind::Init, Some(run)) => run.exit_code == Some(0),
        (_, None) => false,
    })
}

fn is_ready(kind: ContainerKind, run: Option<Progress>) -> bool {
    run.is_some_and(|run| match kind {
        // An init container is ready once it has done its work.
        ContainerKind::Init => run.exit_code == Some(0),
        // It gets no traffic.
        ContainerKind::Ephemeral => false,
        _ => run.exit_code.is_none() && run.started && run.ready,
    })
}

#[cfg(test)]
mod tests {
    use ContainerKind::{Init, Regular, Sidecar};
    use serde_json::json;
    use winddown_shared::{ContainerExit, Pod, WallTime};

    use super::*;
    use crate::container_plan::CrashBackoff;
    use crate::pod::StartFailure;

    /// A numbered sandbox.
    #[derive(Debug, Default)]
    struct Place;

    impl RunScope for Place {
        type Pod = u32;
        type Container = ();
        type Run = u32;

        fn is_past(pod: &u32, run: &u32) -> bool {
            pod != run
        }
    }

    /// A pod in another sandbox than its containers, `first` and `main`, which exited with these codes.
    fn moved(policy: &str, codes: [i32; 2]) -> EnginePodState<Place> {
        let container = |name| json!({"name": name, "image": "x"});
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {
                "restartPolicy": policy,
                "initContainers": [container("first")], "containers": [container("main")],
            },
        });
        let mut state = EnginePodState { own: 1, ..EnginePodState::default() };
        state.take_pod(&Pod::new(serde_json::from_value(pod).unwrap()).unwrap());
        for (container, exit_code) in state.containers.iter_mut().zip(codes) {
            let mut run = Run::new(format!("{}-0", container.name), 0, Duration::ZERO, 0);
            run.started_at = Some(WallTime::UNIX_EPOCH);
            let exit = ContainerExit::new(exit_code);
            run.finish(exit, (Duration::ZERO, Duration::ZERO), &CrashBackoff::default());
            container.begin(run);
        }
        state
    }

    fn code(state: &ContainerState) -> Option<i32> {
        match state {
            ContainerState::Exited(exit) => Some(exit.exit_code),
            _ => None,
        }
    }

    #[tokio::test]
    async fn what_ended_with_its_sandbox_has_ended_until_it_is_started_again() {
        for policy in ["Always", "OnFailure"] {
            let status = status(&moved(policy, [0, 137]), "x");
            let (all, starts_over) = (status.containers, status.starts_over);
            assert!(starts_over);
            assert_eq!((code(&all[0].state), code(&all[1].state)), (Some(0), Some(137)));
            assert!(all[0].ready && !all[1].ready);
            assert!(all.iter().all(|one| one.last_exit.is_none()));
        }
        assert!(!status(&moved("OnFailure", [0, 0]), "x").starts_over, "it is done");
    }

    /// In a back-off its last exit is all that is shown of it, and would say that the pod has succeeded.
    #[tokio::test]
    async fn a_pod_whose_container_was_cut_short_has_not_succeeded_whatever_that_exited_with() {
        for (policy, starts_over) in [("OnFailure", true), ("Never", false)] {
            let mut state = moved(policy, [0, 0]);
            state.own = 0;
            let run = state.containers[1].run.as_mut().unwrap();
            run.cut_short = true;
            run.end.as_mut().unwrap().restart_at = Instant::now() + Duration::from_secs(10);
            let status = status(&state, "x");
            let main = &status.containers[1];
            let shown = main.last_exit.as_ref().map(|exit| exit.exit_code).or(code(&main.state));
            assert_eq!((status.starts_over, shown), (starts_over, Some(0)), "{policy}");
            let is_waiting = matches!(main.state, ContainerState::Waiting { .. });
            assert_eq!(is_waiting, starts_over, "{policy}");
        }
        let mut state = moved("OnFailure", [0, 0]);
        state.containers[1].run.as_mut().unwrap().cut_short = true;
        assert!(status(&state, "x").starts_over, "with its sandbox");
    }

    #[tokio::test]
    async fn what_ended_with_its_sandbox_and_cannot_be_started_again_waits_and_says_why() {
        let mut state = moved("Always", [0, 137]);
        let trouble = StartFailure {
            reason: "ErrImagePull",
            message: "no such image".to_owned(),
            until: Instant::now(),
            wait: Duration::ZERO,
        };
        state.containers[1].trouble = Some(trouble);
        let main = status(&state, "x").containers.remove(1);
        let wanted = ContainerState::Waiting {
            reason: "ErrImagePull".into(),
            message: "no such image".to_owned(),
        };
        assert_eq!(main.state, wanted);
        assert_eq!(main.last_exit.unwrap().exit_code, 137);
    }

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
