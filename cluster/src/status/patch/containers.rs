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
    let never = |_: &str| true;
    // An init container runs again when the pod's sandbox is recreated.
    let inits = |_: &str| ended;
    let regular = |name: &str| ended || is_started_once(pod, name);
    let lists = [
        (
            &mut after.init_container_statuses,
            &said.init_container_statuses,
            &inits as &dyn Fn(&str) -> bool,
        ),
        (&mut after.container_statuses, &said.container_statuses, &regular),
        (&mut after.ephemeral_container_statuses, &said.ephemeral_container_statuses, &never),
    ];
    for (list, said, started_once) in lists {
        if said.as_ref().is_some_and(|said| !said.is_empty()) {
            let had = list.take().unwrap_or_default();
            *list = Some(join(had, said.as_deref().unwrap_or_default(), started_once, ended, over));
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
    started_once: &dyn Fn(&str) -> bool,
    ended: bool,
    over: bool,
) -> Vec<api::ContainerStatus> {
    let mut joined = Vec::with_capacity(said.len().max(had.len()));
    for now in said {
        let before = had.iter().position(|c| c.name == now.name).map(|at| had.remove(at));
        let news = match before {
            Some(before) if !has_ended(now) && has_ended(&before) && started_once(&now.name) => {
                Some(before)
            }
            // The API's phase is terminal although the pod runs: no container is shown as running.
            before if ended && !over && is_running(now) => before,
            _ => Some(now.clone()),
        };
        joined.extend(news);
    }
    joined.append(&mut had);
    joined
}

/// Whether the restart policy lets a regular container run only once.
fn is_started_once(pod: &api::Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let own = spec.containers.iter().find(|c| c.name == name);
    let own = own.and_then(|c| c.restart_policy.as_deref());
    own.or(spec.restart_policy.as_deref()) == Some("Never")
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
