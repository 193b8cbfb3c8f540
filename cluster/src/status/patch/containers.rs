//! Merges the states of containers: what has terminated stays so.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use winddown_shared::ContainerExit;

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
    if ended && over {
        end_unstarted(after);
    }
}

/// Gives the containers that never started a final state, as the kubelet's status manager does: no one changes it any more.
/// Those after an init container that failed keep theirs, because that exit says enough.
fn end_unstarted(status: &mut api::PodStatus) {
    let init = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    let regular = status.container_statuses.as_deref_mut().unwrap_or_default();
    let is_initialized =
        init.last().is_none_or(has_succeeded) || regular.iter().any(|one| !is_unstarted(one));
    // If none has started, the first counts as failed.
    let begun = init.iter().rposition(|one| !is_unstarted(one)).unwrap_or(0);
    let final_now = init.iter_mut().take(begun + 1);
    let final_now = final_now.chain(regular.iter_mut().take_while(|_| is_initialized));
    for one in final_now.filter(|one| is_waiting(one)) {
        one.state = Some(unseen_end(one, None, None));
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
    let running = container.state.as_mut().and_then(|state| state.running.take());
    if let Some(running) = running {
        container.state = Some(unseen_end(container, running.started_at, finished_at));
    }
}

/// The kubelet's values for an end that was not observed.
fn unseen_end(
    container: &api::ContainerStatus,
    started_at: Option<Time>,
    finished_at: Option<Time>,
) -> api::ContainerState {
    let terminated = Some(api::ContainerStateTerminated {
        container_id: container.container_id.clone(),
        exit_code: 137,
        reason: Some(ContainerExit::UNKNOWN.to_owned()),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        started_at,
        finished_at,
        signal: None,
    });
    api::ContainerState { terminated, ..api::ContainerState::default() }
}
