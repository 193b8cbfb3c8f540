//! The API object of a pod that only the container runtime has described. Pure.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use winddown_shared::{
    CONFIG_MIRROR_ANNOTATION, FoundContainer, FoundPod, SYSTEM_CRITICAL_PRIORITY,
};

/// The annotation of a kubelet's containers with their pod's grace period, in seconds.
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The annotation of a kubelet's containers with their preStop hook, as JSON.
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
/// The beginning of the labels that a kubelet adds to those of the pod.
const OF_KUBELET: &str = "io.kubernetes.";
/// The label that only the controller of DaemonSets gives to its pods.
const DAEMON_SET: &str = "pod-template-generation";
/// The namespace whose pods serve all others.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// What is known of the pod, as an object of the API server. What the runtime does not record is absent: volumes,
/// claims, the host's network. Its priority is not recorded either, and follows from its namespace.
pub(super) fn object(found: FoundPod, node: &str) -> api::Pod {
    let is_static = super::mirror::is_of_manifest(&found);
    let FoundPod { uid, name, namespace, mut labels, mut annotations, containers } = found;
    // The pod may say anything of itself; only the kubelet says where it is from.
    annotations.remove(CONFIG_MIRROR_ANNOTATION);
    if is_static {
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), uid.as_str().to_owned());
        annotations.insert(super::facts::CONFIG_HASH.to_owned(), uid.as_str().to_owned());
    }
    labels.retain(|key, _| !key.starts_with(OF_KUBELET));
    let owner = labels.contains_key(DAEMON_SET).then(|| OwnerReference {
        kind: "DaemonSet".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    });
    let is_system = !is_static && namespace == SYSTEM_NAMESPACE;
    let grace = containers.iter().filter_map(|one| one.annotations.get(GRACE)?.parse().ok()).max();
    let status = api::PodStatus {
        phase: Some("Running".to_owned()),
        container_statuses: Some(containers.iter().map(status).collect()),
        ..api::PodStatus::default()
    };
    api::Pod {
        metadata: ObjectMeta {
            uid: Some(uid.as_str().to_owned()),
            name: Some(name),
            namespace: Some(namespace),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: containers.into_iter().map(container).collect(),
            node_name: Some(node.to_owned()),
            priority: is_system.then_some(SYSTEM_CRITICAL_PRIORITY),
            termination_grace_period_seconds: grace,
            ..api::PodSpec::default()
        }),
        status: Some(status),
    }
}

fn container(found: FoundContainer) -> api::Container {
    let hook = found.annotations.get(PRE_STOP).and_then(|text| serde_json::from_str(text).ok());
    let lifecycle = hook.map(|hook| api::Lifecycle { pre_stop: Some(hook), ..Default::default() });
    api::Container {
        name: found.name,
        image: Some(found.image),
        lifecycle,
        ..api::Container::default()
    }
}

/// A container that does not run waits for its kubelet, which may start it again.
fn status(found: &FoundContainer) -> api::ContainerStatus {
    let running = found
        .running_since
        .map(|since| api::ContainerStateRunning { started_at: Some(Time(since)) });
    let waiting = running.is_none().then(api::ContainerStateWaiting::default);
    api::ContainerStatus {
        name: found.name.clone(),
        image: found.image.clone(),
        container_id: Some(found.id.clone()),
        ready: running.is_some(),
        state: Some(api::ContainerState { running, waiting, terminated: None }),
        ..api::ContainerStatus::default()
    }
}

#[cfg(test)]
mod tests;
