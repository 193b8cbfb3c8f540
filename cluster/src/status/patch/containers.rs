//! Merges the states of containers: what has terminated stays so.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Whether any container of the pod runs, of whichever kind.
pub(in crate::status) fn any_running(status: &api::PodStatus) -> bool {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten().any(is_running)
}

/// Merges the containers of `said` into `after`. `ended` is whether the phase there is terminal. `over`
/// is whether nothing runs any more, so that what still seems to run has terminated unobserved.
pub(super) fn merge(
    after: &mut api::PodStatus,
    pod: &api::Pod,
    said: &api::PodStatus,
    ended: bool,
    over: bool,
) {
    let spec = pod.spec.as_ref();
    let inits = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| &*spec.containers).unwrap_or_default();
    let lists = [
        (&mut after.init_container_statuses, &said.init_container_statuses, inits),
        (&mut after.container_statuses, &said.container_statuses, regular),
        // No ephemeral container runs again.
        (&mut after.ephemeral_container_statuses, &said.ephemeral_container_statuses, &[]),
    ];
    for (list, said, declared) in lists {
        if said.as_ref().is_some_and(|said| !said.is_empty()) {
            let stays = |exited: &api::ContainerStatus| {
                ended || !may_run_again(pod.spec.as_ref(), declared, exited)
            };
            let had = list.take().unwrap_or_default();
            *list = Some(join(had, said.as_deref().unwrap_or_default(), &stays, ended, over));
        }
        if ended && over {
            let running = list.iter_mut().flatten().filter(|c| is_running(c));
            running.for_each(|container| end_unseen(container, None));
        }
    }
}

fn join(
    mut had: Vec<api::ContainerStatus>,
    said: &[api::ContainerStatus],
    stays: &dyn Fn(&api::ContainerStatus) -> bool,
    ended: bool,
    over: bool,
) -> Vec<api::ContainerStatus> {
    let mut joined = Vec::with_capacity(said.len().max(had.len()));
    for now in said {
        let before = had.iter().position(|c| c.name == now.name).map(|at| had.remove(at));
        let news = match before {
            Some(before) if !has_ended(now) && has_ended(&before) && stays(&before) => Some(before),
            // The API's phase is terminal although the pod runs: no container is shown as running.
            before if ended && !over && is_running(now) => before,
            _ => Some(now.clone()),
        };
        joined.extend(news);
    }
    joined.append(&mut had);
    joined
}

/// Whether the API server lets a container of this list leave the state that it exited with. It refuses the whole status
/// otherwise: an init container that did its work runs again in a new sandbox, and is not shown to do so.
fn may_run_again(
    spec: Option<&api::PodSpec>,
    declared: &[api::Container],
    exited: &api::ContainerStatus,
) -> bool {
    let Some(container) = declared.iter().find(|c| c.name == exited.name) else { return false };
    let policy = container.restart_policy.as_deref();
    let policy = policy.or_else(|| spec?.restart_policy.as_deref());
    match policy {
        None | Some("Always") => true,
        Some("OnFailure") => {
            let exit = exited.state.as_ref().and_then(|state| state.terminated.as_ref());
            exit.is_some_and(|exit| exit.exit_code != 0)
        }
        Some(_) => false,
    }
}

fn is_running(container: &api::ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn has_ended(container: &api::ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// Makes a container neither ready nor started, and gives one that was running the kubelet's values for an
/// end that was not observed.
pub(crate) fn end_unseen(container: &mut api::ContainerStatus, finished_at: Option<Time>) {
    container.ready = false;
    container.started = Some(false);
    let Some(state) = &mut container.state else { return };
    let Some(running) = state.running.take() else { return };
    state.terminated = Some(api::ContainerStateTerminated {
        container_id: container.container_id.clone(),
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        started_at: running.started_at,
        finished_at,
        signal: None,
    });
}
