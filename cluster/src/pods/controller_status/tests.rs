//! The statuses of pods that wait, and of pods that were lost.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::WallTime;

use super::{WaitReason, lost, waiting};

fn pod(status: Option<api::PodStatus>) -> api::Pod {
    let container = |name: &str| api::Container { name: name.into(), ..api::Container::default() };
    api::Pod {
        spec: Some(api::PodSpec {
            containers: vec![container("a"), container("b")],
            ..api::PodSpec::default()
        }),
        status,
        ..api::Pod::default()
    }
}

fn running() -> api::ContainerState {
    let running = Some(api::ContainerStateRunning::default());
    api::ContainerState { running, ..api::ContainerState::default() }
}

fn done(exit_code: i32) -> api::ContainerState {
    let terminated = api::ContainerStateTerminated { exit_code, ..Default::default() };
    api::ContainerState { terminated: Some(terminated), ..api::ContainerState::default() }
}

fn waits() -> api::ContainerState {
    let waiting = Some(api::ContainerStateWaiting::default());
    api::ContainerState { waiting, ..api::ContainerState::default() }
}

fn status(phase: &str, states: Vec<api::ContainerState>) -> api::PodStatus {
    let named = |(name, state): (&str, api::ContainerState)| api::ContainerStatus {
        name: name.into(),
        state: Some(state),
        ready: true,
        ..api::ContainerStatus::default()
    };
    let statuses: Vec<_> = ["a", "b"].into_iter().zip(states).map(named).collect();
    let ready = api::PodCondition {
        type_: "Ready".into(),
        status: "True".into(),
        ..api::PodCondition::default()
    };
    let foreign = api::PodCondition { type_: "other/Gate".into(), ..ready.clone() };
    api::PodStatus {
        phase: Some(phase.into()),
        container_statuses: Some(statuses),
        conditions: Some(vec![ready, foreign]),
        ..api::PodStatus::default()
    }
}

#[test]
fn a_pod_waits_only_while_nothing_of_it_ran() {
    let rows = [
        ("no status", None, true),
        ("pending", Some(status("Pending", vec![])), true),
        ("waiting", Some(status("Pending", vec![waits(), waits()])), true),
        ("one runs", Some(status("Pending", vec![running(), waits()])), false),
        ("running", Some(status("Running", vec![running()])), false),
        ("failed", Some(status("Failed", vec![])), false),
    ];
    for (what, status, expected) in rows {
        let mut object = pod(status);
        object.metadata.name = Some("p".into());
        object.metadata.namespace = Some("default".into());
        object.metadata.uid = Some("u".into());
        let pod = winddown_shared::Pod::new(object).unwrap();
        let now = WallTime::from_second(7).unwrap();
        let said = waiting(&pod, WaitReason::Config, "no ConfigMap x", now);
        assert_eq!(said.is_some(), expected, "{what}");
        let Some(said) = said else { continue };
        assert_eq!(said.phase.as_deref(), Some("Pending"), "{what}");
        let containers = said.container_statuses.unwrap();
        assert_eq!(containers.len(), 2, "{what}");
        let state = containers[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(state.reason.as_deref(), Some("CreateContainerConfigError"), "{what}");
        assert_eq!(state.message.as_deref(), Some("no ConfigMap x"), "{what}");
        assert_eq!(said.start_time.unwrap().0, now, "{what}");
        let conditions = said.conditions.unwrap();
        let is = |type_| conditions.iter().find(|c| c.type_ == type_).map(|c| c.status.as_str());
        let (scheduled, initialized) = (is("PodScheduled"), is("Initialized"));
        assert_eq!(
            (scheduled, initialized, is("Ready")),
            (Some("True"), Some("True"), Some("False"))
        );
    }
}

#[test]
fn while_the_api_cannot_be_read_or_a_volume_lacks_containers_wait_as_the_kubelets_do() {
    for (init, reason) in [(false, "ContainerCreating"), (true, "PodInitializing")] {
        let mut object = pod(None);
        object.metadata.name = Some("p".into());
        object.metadata.namespace = Some("default".into());
        object.metadata.uid = Some("u".into());
        let spec = object.spec.as_mut().unwrap();
        spec.init_containers = init.then(|| vec![spec.containers[0].clone()]);
        let pod = winddown_shared::Pod::new(object).unwrap();
        let said = waiting(&pod, WaitReason::Creating, "forbidden", WallTime::UNIX_EPOCH).unwrap();
        let state = said.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
        assert_eq!(state.reason.as_deref(), Some(reason));
        assert_eq!(state.message.as_deref(), Some("forbidden"));
    }
}

#[test]
fn a_lost_pod_is_over_and_nothing_of_it_is_said_to_run() {
    let rows = [
        (None, "Failed"),
        (Some(status("Pending", vec![waits(), waits()])), "Failed"),
        (Some(status("Running", vec![running(), done(0)])), "Failed"),
        (Some(status("Running", vec![done(0), done(0)])), "Succeeded"),
        (Some(status("Running", vec![done(0)])), "Failed"),
    ];
    for (n, (status, phase)) in rows.into_iter().enumerate() {
        let said = lost(&pod(status), false, WallTime::UNIX_EPOCH);
        assert_eq!(said.phase.as_deref(), Some(phase), "row {n}");
        for container in said.container_statuses.iter().flatten() {
            assert!(container.state.as_ref().unwrap().running.is_none(), "row {n}");
        }
        for condition in said.conditions.iter().flatten() {
            let is_ours = condition.type_ == "Ready";
            assert_eq!(condition.status, if is_ours { "False" } else { "True" }, "row {n}");
        }
    }
}

#[test]
fn a_reason_that_was_given_stays() {
    let mut evicted = status("Running", vec![running()]);
    evicted.reason = Some("Evicted".into());
    let said = lost(&pod(Some(evicted)), true, WallTime::UNIX_EPOCH);
    assert_eq!(said.reason.as_deref(), Some("Evicted"));
    let said = lost(&pod(None), true, WallTime::UNIX_EPOCH);
    assert_eq!(said.reason.as_deref(), Some("Terminated"));
}
