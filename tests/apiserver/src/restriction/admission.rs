//! The NodeRestriction admission: what a node may write.

use serde_json::Value;

use super::references;
use crate::kinds;
use crate::request::Right;
use crate::store::{Key, Store};
use crate::target::Target;
use crate::write::text;

const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// Labels in the cluster's domains that a node may set on itself.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Checks creations, deletions and other POST requests.
pub(crate) fn admit_write(
    store: &Store,
    node: &str,
    right: &Right,
    target: &Target,
    body: &Value,
) -> Result<(), String> {
    let own_pod = |name: &str| {
        let key = Key::new(target.kind, target.namespace.as_deref(), name);
        store.get(&key).is_none_or(|pod| text(pod, "/spec/nodeName") == node)
    };
    let sub = right.subresource.as_str();
    match (right.resource.as_str(), sub, right.verb.as_str()) {
        ("pods", "", "create") => mirror_pod(store, node, body),
        ("pods", "", "delete") if !own_pod(&right.name) => {
            Err(format!("node \"{node}\" can only delete pods with spec.nodeName set to itself"))
        }
        ("pods", "eviction", _) if !own_pod(&right.name) => {
            Err(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        ("nodes", _, "create" | "update" | "patch") if right.name != node => {
            Err(format!("node \"{node}\" is not allowed to modify node \"{}\"", right.name))
        }
        ("nodes", "", "create") => labels(node, &Value::Null, body),
        ("serviceaccounts", "token", _) => token(store, node, target, body),
        _ => Ok(()),
    }
}

/// Checks changes of existing objects.
pub(crate) fn admit_update(
    node: &str,
    target: &Target,
    old: &Value,
    new: &Value,
) -> Result<(), String> {
    let differ = |pointer: &str| {
        let something = |object: &Value| match object.pointer(pointer) {
            Some(Value::Array(all)) if all.is_empty() => None,
            Some(Value::Null) | None => None,
            Some(other) => Some(other.clone()),
        };
        something(old) != something(new)
    };
    match (target.kind.plural, target.subresource.as_deref()) {
        ("pods", Some("status")) => {
            if text(old, "/spec/nodeName") != node {
                return Err(format!(
                    "node \"{node}\" can only update pod status for pods with spec.nodeName set \
                     to itself"
                ));
            }
            if differ("/metadata/labels") {
                return Err(format!("node \"{node}\" cannot update labels through pod status"));
            }
            Ok(())
        }
        ("nodes", _) => {
            if differ("/spec/taints") {
                return Err(format!("node \"{node}\" is not allowed to modify taints"));
            }
            if differ("/metadata/ownerReferences") {
                return Err(format!("node \"{node}\" is not allowed to modify ownerReferences"));
            }
            labels(node, old, new)
        }
        _ => Ok(()),
    }
}

fn mirror_pod(store: &Store, node: &str, pod: &Value) -> Result<(), String> {
    if pod.pointer(MIRROR).is_none() {
        return Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"{node}\" can \
             only create mirror pods"
        ));
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(format!(
            "node \"{node}\" can only create pods with spec.nodeName set to itself"
        ));
    }
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let [owner] = owners.map(Vec::as_slice).unwrap_or_default() else {
        return Err(format!(
            "node \"{node}\" can only create pods with an owner reference set to itself"
        ));
    };
    if text(owner, "/kind") != "Node" || text(owner, "/name") != node {
        return Err(format!(
            "node \"{node}\" can only create pods with an owner reference set to itself"
        ));
    }
    if owner.get("controller").and_then(Value::as_bool) != Some(true) {
        return Err(format!(
            "node \"{node}\" can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
        return Err(format!(
            "node \"{node}\" must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let own = kinds::called("nodes").and_then(|kind| store.get(&Key::new(kind, None, node)));
    let (uid, own) = (text(owner, "/uid"), own.map_or("", |own| text(own, "/metadata/uid")));
    if uid != own {
        return Err(format!("node {node} UID mismatch: expected {uid} got {own}"));
    }
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    if references::any(spec) || !text(spec, "/serviceAccountName").is_empty() {
        return Err(format!("node \"{node}\" can not create pods that reference API objects"));
    }
    Ok(())
}

fn labels(node: &str, old: &Value, new: &Value) -> Result<(), String> {
    let of = |object: &Value| {
        object.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (old, new) = (of(old), of(new));
    let changed = old.keys().chain(new.keys()).filter(|name| old.get(*name) != new.get(*name));
    let mut barred: Vec<&str> =
        changed.map(String::as_str).filter(|name| is_barred(name)).collect();
    barred.sort_unstable();
    barred.dedup();
    if barred.is_empty() {
        return Ok(());
    }
    let barred = barred.join(", ");
    Err(format!("node \"{node}\" is not allowed to modify labels: {barred}"))
}

fn is_barred(label: &str) -> bool {
    let Some((space, _)) = label.split_once('/') else { return false };
    let within = |domain: &str| space == domain || space.ends_with(&format!(".{domain}"));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let theirs = within("kubernetes.io") || within("k8s.io");
    let allowed = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    theirs && !allowed && !NODE_LABELS.contains(&label)
}

fn token(store: &Store, node: &str, target: &Target, body: &Value) -> Result<(), String> {
    let bound = body.pointer("/spec/boundObjectRef").unwrap_or(&Value::Null);
    let name = text(bound, "/name");
    if text(bound, "/kind") != "Pod" || name.is_empty() {
        return Err("node requested token not bound to a pod".to_owned());
    }
    if text(bound, "/uid").is_empty() {
        return Err("node requested token with a pod binding without a uid".to_owned());
    }
    let key = |kind| Key::new(kind, target.namespace.as_deref(), name);
    let pod = kinds::called("pods").and_then(|kind| store.get(&key(kind)));
    if pod.is_some_and(|pod| text(pod, "/spec/nodeName") != node) {
        return Err("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    Ok(())
}
