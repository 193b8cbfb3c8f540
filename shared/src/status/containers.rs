//! Container statuses in the API's form.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod};

/// The containers of a pod of which nothing was created yet, with the kubelet's reasons.
pub fn pending_containers(pod: &Pod) -> Vec<ContainerStatus> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let one = |container: &api::Container, kind| {
        let state = ContainerState::Waiting { reason: reason.into(), message: String::new() };
        ContainerStatus {
            image: container.image.clone().unwrap_or_default(),
            ..ContainerStatus::new(container.name.as_str(), kind, state)
        }
    };
    let init = init.iter().map(|container| one(container, ContainerKind::of_init(container)));
    init.chain(spec.containers.iter().map(|c| one(c, ContainerKind::Regular))).collect()
}

pub(super) fn to_api(container: &ContainerStatus) -> api::ContainerStatus {
    let id = (!container.id.is_empty()).then(|| container.id.clone());
    // Until the next run exists, the ID is still that of the last one, of which nothing else is known.
    let is_of_last = matches!(container.state, ContainerState::Waiting { .. });
    let none = api::ContainerState::default();
    let state = match &container.state {
        ContainerState::Waiting { reason, message } => api::ContainerState {
            waiting: Some(api::ContainerStateWaiting {
                reason: Some(reason.to_string()),
                message: if message.is_empty() { None } else { Some(message.clone()) },
            }),
            ..none
        },
        ContainerState::Running { started_at } => api::ContainerState {
            running: Some(api::ContainerStateRunning { started_at: Some(Time(*started_at)) }),
            ..none
        },
        ContainerState::Exited(exit) => {
            api::ContainerState { terminated: Some(terminated(id.clone(), exit)), ..none }
        }
    };
    api::ContainerStatus {
        name: container.name.to_string(),
        container_id: id.clone(),
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        ready: container.ready,
        started: Some(container.started),
        restart_count: i32::try_from(container.restart_count).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: container.last_exit.as_ref().map(|exit| api::ContainerState {
            terminated: Some(terminated(id.filter(|_| is_of_last), exit)),
            ..api::ContainerState::default()
        }),
        ..api::ContainerStatus::default()
    }
}

fn terminated(container_id: Option<String>, exit: &ContainerExit) -> api::ContainerStateTerminated {
    api::ContainerStateTerminated {
        container_id,
        exit_code: exit.exit_code,
        signal: exit.signal,
        reason: Some(exit.reason.to_string()),
        message: if exit.message.is_empty() { None } else { Some(exit.message.clone()) },
        started_at: exit.started_at.map(Time),
        finished_at: exit.finished_at.map(Time),
    }
}

/// Gives the containers of a pod that was stopped for good, and that never started, a final state: nobody changes it any
/// more. As with the kubelet, those after an init container that failed keep theirs, because that exit says enough.
pub(super) fn end_unstarted(status: &mut api::PodStatus) {
    let init = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    let regular = status.container_statuses.as_deref_mut().unwrap_or_default();
    let is_initialized =
        init.last().is_none_or(has_succeeded) || regular.iter().any(|one| !is_unstarted(one));
    // If none has started, the first has failed.
    let begun = init.iter().rposition(|one| !is_unstarted(one)).unwrap_or(0);
    let waiting = init.iter_mut().take(begun + 1);
    let waiting = waiting.chain(regular.iter_mut().take_while(|_| is_initialized));
    for one in waiting.filter(|one| is_waiting(one)) {
        one.state = Some(api::ContainerState {
            terminated: Some(api::ContainerStateTerminated {
                exit_code: 137,
                reason: Some("ContainerStatusUnknown".to_owned()),
                message: Some(
                    "The container could not be located when the pod was terminated".to_owned(),
                ),
                ..api::ContainerStateTerminated::default()
            }),
            ..api::ContainerState::default()
        });
    }
}

fn is_waiting(container: &api::ContainerStatus) -> bool {
    container.state.as_ref().is_none_or(|state| state.waiting.is_some())
}

/// Whether no run of the container is known.
fn is_unstarted(container: &api::ContainerStatus) -> bool {
    is_waiting(container) && container.last_state.is_none()
}

fn has_succeeded(container: &api::ContainerStatus) -> bool {
    let states = [&container.state, &container.last_state];
    let mut exits = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    exits.any(|exit| exit.exit_code == 0)
}
