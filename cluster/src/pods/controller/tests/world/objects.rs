//! Pods and statuses for scenarios.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::NODE;

/// A pod as the API has it: one container, 30 s of grace period, restart policy Always.
pub(in super::super) fn pod(name: &str, uid: &str) -> api::Pod {
    let container = api::Container {
        name: "main".into(),
        image: Some("image:1".into()),
        ..api::Container::default()
    };
    api::Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            node_name: Some(NODE.into()),
            containers: vec![container],
            restart_policy: Some("Always".into()),
            termination_grace_period_seconds: Some(30),
            ..api::PodSpec::default()
        }),
        status: Some(phase("Pending")),
    }
}

/// The same pod with restart policy Never.
pub(in super::super) fn once(name: &str, uid: &str) -> api::Pod {
    let mut pod = pod(name, uid);
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    pod
}

pub(in super::super) fn phase(phase: &str) -> api::PodStatus {
    api::PodStatus { phase: Some(phase.into()), ..api::PodStatus::default() }
}

pub(in super::super) fn status(
    phase_name: &str,
    state: api::ContainerState,
) -> Arc<api::PodStatus> {
    let container = api::ContainerStatus {
        name: "main".into(),
        state: Some(state),
        ..api::ContainerStatus::default()
    };
    let container_statuses = Some(vec![container]);
    Arc::new(api::PodStatus { container_statuses, ..phase(phase_name) })
}

pub(in super::super) fn running() -> Arc<api::PodStatus> {
    let state = api::ContainerState {
        running: Some(api::ContainerStateRunning::default()),
        ..api::ContainerState::default()
    };
    status("Running", state)
}

pub(in super::super) fn exited(code: i32) -> Arc<api::PodStatus> {
    let state = api::ContainerState {
        terminated: Some(api::ContainerStateTerminated {
            exit_code: code,
            ..api::ContainerStateTerminated::default()
        }),
        ..api::ContainerState::default()
    };
    status(if code == 0 { "Succeeded" } else { "Failed" }, state)
}

/// Whether a container runs according to the status.
pub(in super::super) fn runs(status: &api::PodStatus) -> bool {
    let containers = status.container_statuses.iter().flatten();
    containers.flat_map(|one| &one.state).any(|state| state.running.is_some())
}
