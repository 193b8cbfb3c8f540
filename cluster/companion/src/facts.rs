//! What can be read from a pod's API object. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::status::is_terminal;
use winddown_shared::{
    CONFIG_MIRROR_ANNOTATION, ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod,
    PodRuntimeStatus, PodUid, SYSTEM_NODE_CRITICAL_PRIORITY, StoppedContainer, WallTime,
};

/// The annotation with the UID by which the kubelet and the container runtime know a manifest's pod.
pub(super) const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// The exit code that Kubernetes shows for an exit that was not observed.
const UNKNOWN_EXIT: i32 = 137;

/// Whether the kubelet has said that the pod has completed: it starts nothing again, and stops what still runs.
pub(super) fn has_completed(pod: &api::Pod) -> bool {
    pod.status.as_ref().is_some_and(is_terminal)
}

/// Whether nothing of the pod runs and the kubelet will not start anything more.
pub(super) fn has_ended(pod: &api::Pod) -> bool {
    let Some(status) = pod.status.as_ref() else { return false };
    let all = containers_of(status);
    if all.iter().any(|one| is_running(one)) {
        return false;
    }
    if is_terminal(status) {
        return true;
    }
    if !all.iter().any(|one| is_terminated(one)) {
        return false;
    }
    let regular = status.container_statuses.as_deref().unwrap_or_default();
    let declared = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let started_all = regular.len() >= declared && regular.iter().all(is_terminated);
    // A pod that is being deleted is not restarted, whatever its policy.
    pod.metadata.deletion_timestamp.is_some() || (started_all && stay_ended(pod, regular))
}

/// Whether a container of the pod runs, according to the kubelet.
pub(super) fn runs(pod: &api::Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| containers_of(status).iter().any(|one| is_running(one)))
}

/// Whether a container runs in `new` that did not run in `old`.
pub(super) fn runs_another(old: &api::Pod, new: &api::Pod) -> bool {
    let all = |pod: &api::Pod| -> Vec<(bool, Option<String>)> {
        let all = pod.status.as_ref().map(containers_of).unwrap_or_default();
        all.into_iter().map(|one| (is_running(one), one.container_id.clone())).collect()
    };
    let had: HashSet<_> = all(old).into_iter().map(|(_, id)| id).collect();
    all(new).iter().any(|(runs, id)| *runs && !had.contains(id))
}

/// Whether the pod's controller replaces it the same way after an eviction and after a deletion. A Job, or an unknown
/// kind, may count a deletion as a failure: only an eviction states that the node is the cause (`DisruptionTarget`).
pub(super) fn is_replaced_alike(pod: &api::Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).is_none_or(|owner| {
        let known = ["ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"];
        known.contains(&owner.kind.as_str())
    })
}

/// The pod's eviction responders, highest priority first. Only for pods that have some does an `EvictionRequest`
/// differ from an eviction.
pub(super) fn responders(pod: &api::Pod) -> Vec<&str> {
    k8s_openapi::k8s_if_ge_1_37! {
        let mut all: Vec<_> =
            pod.spec.iter().flat_map(|spec| spec.eviction_responders.iter().flatten()).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.priority));
        all.into_iter().map(|one| one.name.as_str()).collect()
    }
    k8s_openapi::k8s_if_le_1_36! {
        // The API types of these versions lack the field.
        let _ = pod;
        Vec::new()
    }
}

/// The UID by which the container runtime knows the pod.
pub(super) fn runtime_uid(pod: &Pod) -> PodUid {
    let annotations = pod.metadata.annotations.as_ref().filter(|_| pod.is_mirror());
    let hash = annotations.and_then(|all| all.get(CONFIG_HASH)).map(String::as_str);
    hash.filter(|hash| !hash.is_empty()).map_or_else(|| pod.uid().clone(), PodUid::new)
}

/// Whether the pod has volumes that may be staged: others than files and directories of the node.
pub(super) fn has_volumes(pod: &api::Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let is_of_node = |volume: &api::Volume| {
        volume.host_path.is_some()
            || volume.empty_dir.is_some()
            || volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.downward_api.is_some()
            || volume.projected.is_some()
    };
    !volumes.iter().all(is_of_node)
}

/// Whether the pod names device claims.
pub(super) fn has_claims(pod: &api::Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()))
}

pub(super) fn has_pre_stop(pod: &api::Pod) -> bool {
    with_pre_stop(pod).next().is_some()
}

/// Names of the pod's containers that have a preStop hook.
pub(super) fn with_pre_stop(pod: &api::Pod) -> impl Iterator<Item = &str> {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let has_hook =
        |one: &&api::Container| one.lifecycle.as_ref().is_some_and(|all| all.pre_stop.is_some());
    containers.filter(has_hook).map(|one| one.name.as_str())
}

/// Names of the pod's sidecars, in the order in which they end: the reverse of that in which they start.
pub(super) fn sidecars(pod: &api::Pod) -> Vec<String> {
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).rev();
    let sidecars = inits.filter(|one| ContainerKind::of_init(one) == ContainerKind::Sidecar);
    sidecars.map(|one| one.name.clone()).collect()
}

/// What is left of the grace period of a pod that is being deleted.
pub(super) fn deletion_left(pod: &api::Pod, now: WallTime) -> Option<Duration> {
    let at = pod.metadata.deletion_timestamp.as_ref()?.0;
    let whole = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let whole = Duration::from_secs(u64::try_from(whole).unwrap_or(0));
    // Clocks may differ, so the result is capped at the whole grace period.
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default().min(whole))
}

/// The pod as this agent plans with it. Pods of manifests come last: a kubelet restarts them, and
/// they include what the kubelet itself needs.
pub(super) fn planned(mut object: api::Pod) -> api::Pod {
    let annotations = object.metadata.annotations.as_ref();
    // Without the other pod's UID it is not known yet to be one.
    let mirror = annotations.is_some_and(|all| {
        all.contains_key(CONFIG_MIRROR_ANNOTATION) && all.contains_key(CONFIG_HASH)
    });
    // Unused here, and often the larger half of an object.
    object.metadata.managed_fields = None;
    if let Some(spec) = &mut object.spec {
        let inits = spec.init_containers.iter_mut().flatten();
        spec.containers.iter_mut().chain(inits).for_each(|one| one.env = None);
    }
    if let Some(spec) = object.spec.as_mut().filter(|_| mirror) {
        spec.priority = Some(spec.priority.unwrap_or(0).max(SYSTEM_NODE_CRITICAL_PRIORITY));
        // It is its copy that is deleted.
        object.metadata.deletion_timestamp = None;
        object.metadata.deletion_grace_period_seconds = None;
    }
    object
}

/// Whether the objects differ in something that affects decisions about the pod, other than container states.
pub(super) fn matters(old: &api::Pod, new: &api::Pod) -> bool {
    let phase = |pod: &api::Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let (had, has) = (&old.metadata, &new.metadata);
    had.deletion_timestamp != has.deletion_timestamp
        || had.deletion_grace_period_seconds != has.deletion_grace_period_seconds
        || had.generation != has.generation
        || had.labels != has.labels
        || had.annotations != has.annotations
        || phase(old) != phase(new)
        || old.spec != new.spec
}

/// The containers as the kubelet reports them. If `ended`, those reported as running have exited unobserved.
pub(super) fn status(pod: &api::Pod, ended: bool) -> PodRuntimeStatus {
    let none = api::PodStatus::default();
    let said = pod.status.as_ref().unwrap_or(&none);
    let Some(spec) = pod.spec.as_ref() else { return PodRuntimeStatus::default() };
    let (init, regular) = (&said.init_container_statuses, &said.container_statuses);
    let (of_init, of_regular) = (by_name(init.iter().flatten()), by_name(regular.iter().flatten()));
    let inits = spec.init_containers.iter().flatten().map(|container| {
        let kind = ContainerKind::of_init(container);
        (container, kind, of_init.get(&*container.name).copied())
    });
    let regular = spec.containers.iter().map(|container| {
        (container, ContainerKind::Regular, of_regular.get(&*container.name).copied())
    });
    let all = inits.chain(regular);
    let containers =
        all.map(|(container, kind, found)| one(container, kind, found.cloned(), ended));
    let mut status = PodRuntimeStatus::new(containers.collect());
    // The kubelet may start any of them again until it says that the pod has completed.
    status.starts_over = !is_terminal(said);
    status.started_at = said.start_time.as_ref().map(|time| time.0);
    status.ips = said.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    status
}

/// How the containers named in `before` ended, as far as `after` shows it.
pub(super) fn stopped(before: &[Arc<str>], after: &api::Pod) -> Vec<StoppedContainer> {
    let Some(status) = after.status.as_ref() else { return Vec::new() };
    let known = by_name(containers_of(status).into_iter());
    let ended = |name: &Arc<str>| {
        let found = known.get(&**name)?;
        let exit = found.state.as_ref()?.terminated.as_ref()?;
        let reason = exit.reason.as_deref().unwrap_or_default();
        Some(StoppedContainer::from_exit_code(Arc::clone(name), exit.exit_code, reason))
    };
    before.iter().filter_map(ended).collect()
}

/// Names of the running containers.
pub(super) fn running(pod: &api::Pod) -> Vec<Arc<str>> {
    let all = pod.status.as_ref().map(containers_of).unwrap_or_default();
    all.into_iter().filter(|one| is_running(one)).map(|one| one.name.as_str().into()).collect()
}

fn one(
    container: &api::Container,
    kind: ContainerKind,
    found: Option<api::ContainerStatus>,
    ended: bool,
) -> ContainerStatus {
    let found = found.unwrap_or_default();
    let state = match state(found.state.unwrap_or_default()) {
        ContainerState::Running { started_at } if ended => {
            let mut exit = ContainerExit::new(UNKNOWN_EXIT);
            exit.reason = ContainerExit::UNKNOWN.into();
            "the container's exit was not observed".clone_into(&mut exit.message);
            exit.started_at = Some(started_at);
            ContainerState::Exited(exit)
        }
        state => state,
    };
    let running = matches!(state, ContainerState::Running { .. });
    let mut status = ContainerStatus::new(container.name.as_str(), kind, state);
    status.id = found.container_id.unwrap_or_default();
    status.image = container.image.clone().unwrap_or_default();
    status.image_id = found.image_id;
    status.last_exit = found.last_state.and_then(|last| last.terminated).map(exit);
    status.restart_count = u32::try_from(found.restart_count).unwrap_or(0);
    status.started = running && found.started.unwrap_or(true);
    status.ready = running && found.ready;
    status
}

fn state(state: api::ContainerState) -> ContainerState {
    if let Some(terminated) = state.terminated {
        return ContainerState::Exited(exit(terminated));
    }
    if let Some(running) = state.running {
        let started_at = running.started_at.map_or(WallTime::UNIX_EPOCH, |time| time.0);
        return ContainerState::Running { started_at };
    }
    let waiting = state.waiting.unwrap_or_default();
    ContainerState::Waiting {
        reason: waiting.reason.unwrap_or_else(|| "ContainerCreating".into()).into(),
        message: waiting.message.unwrap_or_default(),
    }
}

fn exit(said: api::ContainerStateTerminated) -> ContainerExit {
    let mut exit = ContainerExit::new(said.exit_code);
    exit.signal = said.signal.filter(|signal| *signal != 0);
    exit.reason = said.reason.unwrap_or_default().into();
    exit.message = said.message.unwrap_or_default();
    exit.started_at = said.started_at.map(|time| time.0);
    exit.finished_at = said.finished_at.map(|time| time.0);
    exit
}

/// Whether these containers have exited and the kubelet will start none again.
fn stay_ended(pod: &api::Pod, all: &[api::ContainerStatus]) -> bool {
    let Some(spec) = &pod.spec else { return all.is_empty() };
    let containers: HashMap<_, _> = spec.containers.iter().map(|one| (&*one.name, one)).collect();
    all.iter().all(|one| stays_ended(spec, containers.get(&*one.name).copied(), one))
}

/// Whether a container has exited and the kubelet will not start it again: its own rules and policy come before the pod's
/// policy.
fn stays_ended(
    spec: &api::PodSpec,
    container: Option<&api::Container>,
    status: &api::ContainerStatus,
) -> bool {
    let exit = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let Some(exit) = exit else { return false };
    if container.is_some_and(|container| has_rule_for(container, exit.exit_code)) {
        return false;
    }
    let own = container.and_then(|container| container.restart_policy.as_deref());
    match own.or(spec.restart_policy.as_deref()) {
        Some("Never") => true,
        Some("OnFailure") => exit.exit_code == 0,
        _ => false,
    }
}

/// Whether a rule of the container applies to this exit code: all of them start something again.
fn has_rule_for(container: &api::Container, exit_code: i32) -> bool {
    k8s_openapi::k8s_if_ge_1_34! {
        container.restart_policy_rules.iter().flatten().any(|rule| {
            rule.exit_codes.as_ref().is_none_or(|codes| {
                let is_listed = codes.values.iter().flatten().any(|code| *code == exit_code);
                is_listed == (codes.operator == "In")
            })
        })
    }
    k8s_openapi::k8s_if_le_1_33! {
        // The API types of these versions lack the field.
        let _ = (container, exit_code);
        false
    }
}

fn is_running(container: &api::ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn is_terminated(container: &api::ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// The containers by their names, of which a pod may have tens of thousands.
fn by_name<'a>(
    all: impl Iterator<Item = &'a api::ContainerStatus>,
) -> HashMap<&'a str, &'a api::ContainerStatus> {
    all.map(|one| (one.name.as_str(), one)).collect()
}

/// All containers, including sidecars and ephemeral containers.
fn containers_of(status: &api::PodStatus) -> Vec<&api::ContainerStatus> {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// An API server accepts such a pod, and no kubelet has to run it for its object to be watched.
    #[test]
    fn a_pod_of_twenty_thousand_containers_is_looked_through_once() {
        let names: Vec<_> = (0..20_000).map(|i| format!("a-container-{i}")).collect();
        let status = |name: &String| api::ContainerStatus {
            name: name.clone(),
            container_id: Some(format!("containerd://{name}")),
            ..api::ContainerStatus::default()
        };
        let container = |name: &String| api::Container { name: name.clone(), ..<_>::default() };
        let pod = api::Pod {
            spec: Some(api::PodSpec {
                containers: names.iter().map(container).collect(),
                ..<_>::default()
            }),
            status: Some(api::PodStatus {
                container_statuses: Some(names.iter().map(status).collect()),
                ..<_>::default()
            }),
            ..<_>::default()
        };
        let cpu_seconds = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let began = cpu_seconds();
        assert_eq!(super::status(&pod, false).containers.len(), names.len());
        assert!(!runs_another(&pod, &pod));
        let before: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        assert!(stopped(&before, &pod).is_empty());
        assert!(cpu_seconds() - began < 5);
    }
}
