//! The pods of the node, in the form in which an API server lists them.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use serde_json::json;
use winddown_shared::status::StatusEntry;

/// The annotation that contains the whole object, including the values of environment variables.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Builds a `PodList`. Environment variables have no values, because values from Secrets are resolved in these specs.
pub(crate) fn list(entries: &[StatusEntry]) -> Result<Vec<u8>, serde_json::Error> {
    let mut pods: Vec<Pod> = entries.iter().map(shown).collect();
    let name = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
    pods.sort_by_cached_key(name);
    serde_json::to_vec(&json!({
        "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods,
    }))
}

fn shown(entry: &StatusEntry) -> Pod {
    let mut pod = Pod::clone(&entry.pod);
    pod.status = Some((*entry.status).clone());
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(spec) = &mut pod.spec {
        let init = spec.init_containers.iter_mut().flatten();
        spec.containers.iter_mut().chain(init).for_each(hide_values);
        spec.ephemeral_containers.iter_mut().flatten().for_each(hide_values_of_ephemeral);
    }
    pod
}

fn hide_values(container: &mut Container) {
    container.env.iter_mut().flatten().for_each(|variable| variable.value = None);
}

fn hide_values_of_ephemeral(container: &mut EphemeralContainer) {
    container.env.iter_mut().flatten().for_each(|variable| variable.value = None);
}
