//! The identity of a pod from a file: name, UID, annotations, node.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use k8s_openapi::api::core::v1 as api;
use sha2::{Digest, Sha256};
use winddown_shared::CONFIG_SPEC_ANNOTATION;

/// The annotations that the kubelet puts on a pod from a file.
const SOURCE: &str = "kubernetes.io/config.source";
const HASH: &str = "kubernetes.io/config.hash";
/// How many bytes the annotation with the hash adds to the pod's own.
pub(super) const HASH_SIZE: usize = HASH.len() + 32;

/// Returns the pod's own UID, or a hash of the pod, the node and the path.
///
/// The parsed pod is hashed, not its text: a change of comments or whitespace does not restart a pod.
pub(super) fn uid(pod: &api::Pod, path: &Path, node_name: &str) -> String {
    if let Some(uid) = own_uid(pod) {
        return uid.to_owned();
    }
    let mut hash = Sha256::new();
    // A pod that was read from text holds nothing that JSON cannot represent.
    hash.update(serde_json::to_vec(pod).unwrap_or_default());
    hash.update(b"\nhost:");
    hash.update(node_name.as_bytes());
    hash.update(b"\nfile:");
    hash.update(path.as_os_str().as_bytes());
    digits(hash)
}

fn own_uid(pod: &api::Pod) -> Option<&str> {
    pod.metadata.uid.as_deref().filter(|uid| !uid.is_empty())
}

/// 32 hexadecimal digits, as the kubelet's UID, which is an MD5, has.
fn digits(hash: Sha256) -> String {
    hash.finalize().iter().take(16).fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Binds the pod to this node, as the kubelet does for a pod from a file. Marks the spec of a pod with its own UID, which
/// does not show a change.
pub(super) fn bind(pod: &mut api::Pod, uid: String, node_name: &str) {
    let mark = own_uid(pod).and_then(|_| serde_json::to_vec(&pod.spec).ok());
    let meta = &mut pod.metadata;
    meta.name = Some(full_name(meta.name.as_deref().unwrap_or_default(), node_name));
    if meta.namespace.as_ref().is_none_or(String::is_empty) {
        meta.namespace = Some("default".to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    annotations.insert(HASH.to_owned(), uid.clone());
    if let Some(spec) = mark {
        annotations
            .insert(CONFIG_SPEC_ANNOTATION.to_owned(), digits(Sha256::new_with_prefix(spec)));
    }
    meta.uid = Some(uid);

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    tolerate_no_execute(spec);
    pod.status = Some(api::PodStatus { phase: Some("Pending".to_owned()), ..Default::default() });
}

/// The name of the pod, derived from the one in the file.
pub(super) fn full_name(name: &str, node_name: &str) -> String {
    format!("{name}-{}", node_name.to_ascii_lowercase())
}

/// Tolerates all `NoExecute` taints: a pod from a file is not evicted because its node has problems, as it would not
/// start elsewhere.
fn tolerate_no_execute(spec: &mut api::PodSpec) {
    let tolerations = spec.tolerations.get_or_insert_default();
    let all = api::Toleration {
        effect: Some("NoExecute".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Default::default()
    };
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
}
