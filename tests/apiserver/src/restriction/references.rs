//! The ConfigMaps and Secrets to which the pods of a node refer.

use serde_json::Value;

use crate::kinds;
use crate::request::Right;
use crate::store::Store;
use crate::write::text;

/// Whether a pod on the node, in the namespace of the request, refers to the requested object.
pub(super) fn from_node(store: &Store, node: &str, right: &Right) -> bool {
    let Some(pods) = kinds::called("pods") else { return false };
    let words: &[&str] = match right.resource.as_str() {
        "secrets" => &["secret", "secretRef", "secretKeyRef", "imagePullSecrets"],
        _ => &["configMap", "configMapRef", "configMapKeyRef"],
    };
    store.of_kind(pods).any(|(key, pod)| {
        key.namespace == right.namespace
            && text(pod, "/spec/nodeName") == node
            && pod.get("spec").is_some_and(|spec| names(spec, words, &right.name))
    })
}

/// Whether a spec refers to any ConfigMap or Secret.
pub(super) fn any(spec: &Value) -> bool {
    const WORDS: [&str; 7] = [
        "secret",
        "secretRef",
        "secretKeyRef",
        "imagePullSecrets",
        "configMap",
        "configMapRef",
        "configMapKeyRef",
    ];
    match spec {
        Value::Object(map) => {
            map.iter().any(|(name, value)| WORDS.contains(&name.as_str()) || any(value))
        }
        Value::Array(items) => items.iter().any(any),
        _ => false,
    }
}

fn names(value: &Value, words: &[&str], wanted: &str) -> bool {
    let is_named = |reference: &Value| {
        text(reference, "/name") == wanted || text(reference, "/secretName") == wanted
    };
    match value {
        Value::Object(map) => map.iter().any(|(field, value)| {
            if words.contains(&field.as_str()) {
                match value {
                    Value::Array(items) => items.iter().any(is_named),
                    one => is_named(one),
                }
            } else {
                names(value, words, wanted)
            }
        }),
        Value::Array(items) => items.iter().any(|item| names(item, words, wanted)),
        _ => false,
    }
}
