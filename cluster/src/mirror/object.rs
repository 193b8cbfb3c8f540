//! The mirror pod of a static pod, as it is created.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Pod, WallTime};

const HASH: &str = "kubernetes.io/config.hash";
const SEEN: &str = "kubernetes.io/config.seen";

/// The hash of the manifest: the annotation, or else the UID, which is derived from it.
pub(super) fn hash_of(pod: &Pod) -> &str {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(HASH)).map_or(pod.uid().as_str(), String::as_str)
}

/// Returns the mirror of a static pod on the node with this name and UID. `now` is when it was first seen.
///
/// The static pod's identity and status are left out: the API gives the mirror its own UID, and the status
/// is written once there is one.
pub fn mirror_of(pod: &Pod, node_name: &str, node_uid: &str, now: WallTime) -> api::Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = hash_of(pod).to_owned();
    annotations.entry(CONFIG_SOURCE_ANNOTATION.to_owned()).or_insert_with(|| "file".to_owned());
    annotations.entry(SEEN.to_owned()).or_insert_with(|| now.to_string());
    annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), hash.clone());
    annotations.insert(HASH.to_owned(), hash);
    let mut spec = pod.spec.clone().unwrap_or_default();
    spec.node_name = Some(node_name.to_owned());
    let tolerations = spec.tolerations.get_or_insert_default();
    let all = api::Toleration {
        effect: Some("NoExecute".to_owned()),
        operator: Some("Exists".to_owned()),
        ..api::Toleration::default()
    };
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
    api::Pod {
        metadata: ObjectMeta {
            name: Some(pod.name().to_string()),
            namespace: Some(pod.namespace().to_string()),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node_name.to_owned(),
                uid: node_uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}
