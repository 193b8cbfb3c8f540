//! Statuses that the controller itself reports, because the node has none.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use winddown_shared::status::{StatusInput, generate, pending_containers};
use winddown_shared::{ContainerState, Pod, PodRuntimeStatus, StatusOverride, WallTime};

use crate::status::end_unseen;

#[cfg(test)]
mod tests;

/// Why a pod has not been given to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// The node cannot admit or reject it yet.
    Node,
    /// A variable of its environment could not be resolved.
    Config,
    /// A volume could not be made, or the API server not be read: for the kubelet the containers are being created.
    Creating,
}

/// Returns the status of a waiting pod, whose containers say why; `None` if any has run already.
///
/// The phase stays `Pending` whatever the restart policy: what could not be created may be created
/// later, and a Failed pod is never retried.
pub(crate) fn waiting(
    pod: &Pod,
    why: WaitReason,
    message: &str,
    now: WallTime,
) -> Option<api::PodStatus> {
    let previous = pod.status.as_ref();
    let may_run = previous.is_none_or(|status| {
        matches!(status.phase.as_deref(), None | Some("" | "Pending")) && !has_run(status)
    });
    if !may_run {
        return None;
    }
    let reason = match why {
        WaitReason::Node => Some("NodeNotReady"),
        WaitReason::Config => Some("CreateContainerConfigError"),
        WaitReason::Creating => None,
    };
    let mut containers = pending_containers(pod);
    for container in &mut containers {
        if let ContainerState::Waiting { reason: first, message: told } = &mut container.state {
            *told = message.to_owned();
            if let Some(reason) = reason {
                *first = reason.into();
            }
        }
    }
    let runtime = &PodRuntimeStatus::new(containers);
    let (stopped, ended_by_agent, host_ips) = (false, None, &[] as &[_]);
    let input = StatusInput { pod, runtime, previous, stopped, ended_by_agent, host_ips, now };
    Some(generate(input))
}

/// Returns the final status of a pod that waited for longer than it may be active.
pub(crate) fn overdue(pod: &Pod, now: WallTime) -> api::PodStatus {
    let runtime = &PodRuntimeStatus::new(pending_containers(pod));
    let ended_by_agent = Some(&StatusOverride::deadline_exceeded());
    let (previous, stopped, host_ips) = (pod.status.as_ref(), true, &[] as &[_]);
    generate(StatusInput { pod, runtime, previous, stopped, ended_by_agent, host_ips, now })
}

/// Returns the final status of a pod that may not run (again), from what the runtime has of it.
pub(crate) fn ended(pod: &Pod, runtime: &PodRuntimeStatus, now: WallTime) -> api::PodStatus {
    let (previous, ended_by_agent, host_ips) = (pod.status.as_ref(), None, &[] as &[_]);
    generate(StatusInput { pod, runtime, previous, stopped: true, ended_by_agent, host_ips, now })
}

/// Returns the final status of a pod that may not run (again), and of which the runtime has nothing.
///
/// A container that was running gets the exit code of an unobserved end; one that never ran is left as it is.
pub(crate) fn lost(pod: &api::Pod, is_deleting: bool, now: WallTime) -> api::PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let parts = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in parts.into_iter().flatten().flatten() {
        end_unseen(container, Some(Time(now)));
    }
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let expected = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let all_well = !containers.is_empty()
        && containers.len() == expected
        && containers.iter().all(|c| exit_code(c) == Some(0));
    if all_well {
        status.phase = Some("Succeeded".to_owned());
    } else {
        status.phase = Some("Failed".to_owned());
        let (reason, message) = if is_deleting {
            ("Terminated", "The pod was deleted, and its node's runtime has nothing of it")
        } else {
            ("NotFound", "The pod ran on this node, whose runtime has nothing of it any more")
        };
        status.reason.get_or_insert_with(|| reason.to_owned());
        status.message.get_or_insert_with(|| message.to_owned());
    }
    let reason = if all_well { "PodCompleted" } else { "PodFailed" };
    for condition in status.conditions.iter_mut().flatten() {
        let is_ours = matches!(condition.type_.as_str(), "Ready" | "ContainersReady");
        if is_ours && condition.status != "False" {
            condition.status = "False".to_owned();
            condition.reason = Some(reason.to_owned());
            condition.message = None;
            condition.last_transition_time = Some(Time(now));
        }
    }
    status
}

fn has_run(status: &api::PodStatus) -> bool {
    let all = [&status.container_statuses, &status.init_container_statuses];
    all.into_iter().flatten().flatten().any(|container| {
        let ran = |state: &Option<api::ContainerState>| {
            state.as_ref().is_some_and(|s| s.running.is_some() || s.terminated.is_some())
        };
        ran(&container.state) || ran(&container.last_state)
    })
}

fn exit_code(container: &api::ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}
