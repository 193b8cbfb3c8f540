//! `EvictionRequest` (KEP-4563, `lifecycle.k8s.io/v1alpha1` of Kubernetes 1.37): a pod's own responders are requested
//! to stop it, for example by a live migration, before it is evicted.
//!
//! For a pod without responders, a request would only make the control plane evict it, without this node's grace
//! period. So requests are made only for pods that name responders.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, TypeMeta};
use serde_json::{Value, json};
use winddown_api_client::refusal;
use winddown_shared::PodRef;

const GROUP_VERSION: &str = "lifecycle.k8s.io/v1alpha1";
const PLURAL: &str = "evictionrequests";
const KIND: &str = "EvictionRequest";
/// The requester that the control plane shows for the request.
const REQUESTER: &str = "winddown.dev/companion";

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Responding {
    /// A responder is working on it, none has started yet, or the pod has terminated or is gone.
    Pending,
    /// No responder will stop the pod, for this reason.
    Failed(String),
}

/// Whether the API server serves eviction requests.
pub(super) async fn served(client: &kube::Client) -> kube::Result<bool> {
    match client.list_api_group_resources(GROUP_VERSION).await {
        Ok(list) => Ok(list.resources.iter().any(|one| one.name == PLURAL)),
        Err(error) if refusal::is_unserved(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The API for the requests of a namespace.
pub(super) fn of(client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = GROUP_VERSION.split_once('/').unwrap_or_default();
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: GROUP_VERSION.to_owned(),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    };
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The name of the pod's request. It is derived from the UID, so that a restarted agent finds an existing request.
pub(super) fn name(pod: &PodRef) -> String {
    format!("winddown-{}", pod.uid.as_str())
}

/// The request for this pod. It is deleted with the pod.
pub(super) fn request(pod: &PodRef) -> DynamicObject {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.to_string(),
        uid: pod.uid.as_str().to_owned(),
        ..OwnerReference::default()
    };
    let target = json!({"pod": {"name": &*pod.name, "uid": pod.uid.as_str()}});
    DynamicObject {
        types: Some(TypeMeta { api_version: GROUP_VERSION.to_owned(), kind: KIND.to_owned() }),
        metadata: ObjectMeta {
            name: Some(name(pod)),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: json!({"spec": {"target": target, "requester": REQUESTER, "intent": "Eviction"}}),
    }
}

// === impl Responding ===

impl Responding {
    /// Reads the conditions of the request.
    pub(super) fn of(request: &Value) -> Self {
        let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = |condition: &&Value, kind: &str| {
            condition["type"] == kind && condition["status"] == "True"
        };
        let find = |kind: &str| conditions.into_iter().flatten().find(|one| is_true(one, kind));
        if find("TargetEvicted").is_some() {
            return Self::Pending;
        }
        let Some(failed) = find("Failed") else { return Self::Pending };
        let say = |field: &str| failed[field].as_str().filter(|text| !text.is_empty());
        Self::Failed(say("message").or(say("reason")).unwrap_or("without a reason").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_request_is_what_its_true_conditions_say() {
        let one = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "EvictionInvalid", "message": message,
            })
        };
        for (conditions, wanted) in [
            (json!(null), Responding::Pending),
            (
                json!([one("TargetEvicted", "False", ""), one("Failed", "Unknown", "")]),
                Responding::Pending,
            ),
            (json!([one("TargetEvicted", "True", "")]), Responding::Pending),
            (json!([one("Failed", "True", "in a group")]), Responding::Failed("in a group".into())),
            (json!([one("Failed", "True", "")]), Responding::Failed("EvictionInvalid".into())),
        ] {
            let request = json!({"status": {"conditions": conditions}});
            assert_eq!(Responding::of(&request), wanted, "{request}");
        }
    }
}
