//! Pods that another program runs in the same container runtime, as it recorded them. Pure.

use std::collections::{BTreeMap, HashMap};

use winddown_shared::{FoundContainer, FoundPod, PodUid, PodUidMap, WallTime};

use super::api::{Container, ContainerState, PodSandbox, PodSandboxState};
use super::labels;

/// The pods with a ready sandbox or a running container, in the order of their names.
pub(super) fn described(
    mut sandboxes: Vec<PodSandbox>,
    mut containers: Vec<Container>,
) -> Vec<FoundPod> {
    // The newest last, which replaces the earlier ones.
    sandboxes.sort_by_key(|sandbox| sandbox.created_at);
    containers.sort_by_key(|container| container.created_at);
    let mut by_pod: PodUidMap<BTreeMap<String, FoundContainer>> = PodUidMap::default();
    for mut container in containers {
        let Some(uid) = container.labels.remove(labels::POD_UID).map(PodUid::new) else { continue };
        let Some(name) = container.labels.remove(labels::CONTAINER_NAME) else { continue };
        by_pod.entry(uid).or_default().insert(name.clone(), found(name, container));
    }
    let mut pods: PodUidMap<FoundPod> = PodUidMap::default();
    for sandbox in sandboxes {
        let Some(uid) = sandbox.labels.get(labels::POD_UID).map(|uid| PodUid::new(&**uid)) else {
            continue;
        };
        let containers = by_pod.get(&uid).into_iter().flat_map(BTreeMap::values);
        let containers = containers.cloned().collect::<Vec<_>>();
        let runs = containers.iter().any(|container| container.running_since.is_some());
        if !runs && sandbox.state() != PodSandboxState::SandboxReady {
            continue;
        }
        let PodSandbox { metadata, labels, annotations, .. } = sandbox;
        let metadata = metadata.unwrap_or_default();
        let (labels, annotations) = (sorted(labels), sorted(annotations));
        let (name, namespace) = (metadata.name, metadata.namespace);
        let pod = FoundPod { uid: uid.clone(), name, namespace, labels, annotations, containers };
        pods.insert(uid, pod);
    }
    let mut pods: Vec<_> = pods.into_values().collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    pods
}

/// Whether processes of the container may run: a runtime that was restarted may not know.
pub(super) fn may_run(container: &Container) -> bool {
    match container.state() {
        ContainerState::ContainerRunning | ContainerState::ContainerUnknown => true,
        ContainerState::ContainerCreated | ContainerState::ContainerExited => false,
    }
}

fn found(name: String, container: Container) -> FoundContainer {
    let runs = may_run(&container);
    let image = container.image.unwrap_or_default();
    let named = Some(image.user_specified_image).filter(|image| !image.is_empty());
    let since = WallTime::from_nanosecond(container.created_at.into());
    FoundContainer {
        name,
        id: container.id,
        image: named.unwrap_or(image.image),
        running_since: runs.then(|| since.unwrap_or_default()),
        annotations: sorted(container.annotations),
    }
}

fn sorted(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}
