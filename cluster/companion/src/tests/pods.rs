//! API objects of pods.

use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use winddown_shared::PodUid;

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn uid(name: &str) -> PodUid {
    PodUid::new(format!("uid-{name}"))
}

/// The UID of this node's object.
pub(crate) const NODE_UID: &str = "uid-of-n1";

/// A running pod with one container, `a`; `more` is merged into the object. A mirror pod has what kubelets write besides
/// the annotation, unless `more` says otherwise: this node's object as its owner, and the UID of the other pod.
pub(crate) fn pod(name: &str, more: Value) -> api::Pod {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]},
        "status": {"phase": "Running", "containerStatuses": [running()]},
    });
    merge(&mut object, more);
    let metadata = &mut object["metadata"];
    if metadata["annotations"]["kubernetes.io/config.mirror"].is_string() {
        let own = metadata["uid"].clone();
        let hash = &mut metadata["annotations"]["kubernetes.io/config.hash"];
        if hash.is_null() {
            *hash = own;
        }
        if metadata["ownerReferences"].is_null() {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": NODE_UID, "controller": true,
            }]);
        }
    }
    serde_json::from_value(object).unwrap()
}

pub(crate) fn running() -> Value {
    json!({
        "name": "a", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}},
    })
}

pub(crate) fn terminated(exit_code: i32) -> Value {
    json!({
        "name": "a", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": exit_code, "reason": "Completed"}},
    })
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
