//! Container statuses in the API's form.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod};

/// The termination messages of a pod that are in its status may have this many bytes, each container's an equal share of
/// it, as with a kubelet: an API server refuses a status that is too large, and no end of the pod would be known.
const MAX_MESSAGES_BYTES: usize = 12 << 10;

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

/// The containers of these kinds, if there are any.
pub(super) fn listed(
    containers: &[ContainerStatus],
    kinds: &[ContainerKind],
) -> Option<Vec<api::ContainerStatus>> {
    let all = containers.iter().filter(|one| kinds.contains(&one.kind));
    let most = MAX_MESSAGES_BYTES / containers.len().max(1);
    let mut list: Vec<_> = all.map(|one| to_api(one, most)).collect();
    // The list is kept, and collecting from a `filter` leaves spare capacity.
    list.shrink_to_fit();
    (!list.is_empty()).then_some(list)
}

/// Whether `status` shows each of these containers in its state, and as ready as it is.
pub(crate) fn shows(status: &api::PodStatus, containers: &[ContainerStatus]) -> bool {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let shown = lists.into_iter().flatten().flatten();
    containers.iter().all(|one| shown.clone().any(|shown| is_shown(shown, one)))
}

fn is_shown(shown: &api::ContainerStatus, container: &ContainerStatus) -> bool {
    let has_same_state = shown.state.as_ref().is_some_and(|state| match container.state {
        ContainerState::Running { .. } => state.running.is_some(),
        ContainerState::Exited(_) => state.terminated.is_some(),
        // Its reason may be new.
        ContainerState::Waiting { .. } => false,
    });
    has_same_state
        && shown.name == *container.name
        && shown.ready == container.ready
        && shown.container_id.as_deref().unwrap_or_default() == container.id
}

fn to_api(container: &ContainerStatus, most: usize) -> api::ContainerStatus {
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
            api::ContainerState { terminated: Some(terminated(id.clone(), exit, most)), ..none }
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
            terminated: Some(terminated(id.filter(|_| is_of_last), exit, most)),
            ..api::ContainerState::default()
        }),
        ..api::ContainerStatus::default()
    }
}

fn terminated(
    container_id: Option<String>,
    exit: &ContainerExit,
    most: usize,
) -> api::ContainerStateTerminated {
    let mut end = exit.message.len().min(most);
    while !exit.message.is_char_boundary(end) {
        end -= 1;
    }
    api::ContainerStateTerminated {
        container_id,
        exit_code: exit.exit_code,
        signal: exit.signal,
        reason: Some(exit.reason.to_string()),
        message: (end > 0).then(|| exit.message[..end].to_owned()),
        started_at: exit.started_at.map(Time),
        finished_at: exit.finished_at.map(Time),
    }
}
