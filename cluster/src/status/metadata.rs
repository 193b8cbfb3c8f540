//! Labels and annotations that a node agent gives to a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use winddown_shared::PodRef;

use winddown_api_client::refusal::Refusal;

/// Changes to a pod's metadata. `None` removes a key; keys that are not named stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// Why a pod's metadata was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The pod no longer exists; another one with its name may.
    #[error("pod {pod} is gone")]
    Gone {
        /// The pod.
        pod: PodRef,
    },
    /// The API server did not make the change. It may be retried.
    #[error("cannot change the metadata of pod {pod}")]
    Api {
        /// The pod.
        pod: PodRef,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Makes one attempt to change labels and annotations of the pod with this UID.
///
/// A status never includes metadata, so that it does not undo a user's edit.
///
/// # Errors
/// See [`MetadataError`].
pub async fn change_metadata(
    client: &kube::Client,
    pod: &PodRef,
    change: &MetadataChange,
) -> Result<(), MetadataError> {
    let pods = Api::<api::Pod>::namespaced(client.clone(), &pod.namespace);
    let patch = json!({ "metadata": {
        "uid": pod.uid,
        "labels": change.labels,
        "annotations": change.annotations,
    }});
    match pods.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if Refusal::of(&error).is_gone() => {
            Err(MetadataError::Gone { pod: pod.clone() })
        }
        Err(error) => Err(MetadataError::Api { pod: pod.clone(), source: Box::new(error) }),
    }
}

#[cfg(test)]
mod tests {
    use winddown_apiserver::ApiServer;
    use winddown_shared::PodUid;

    use super::*;

    /// virtual-kubelet: E2EPodStatusUpdate. There the annotation came along with the status, and edits by users were
    /// undone by it. Here it is requested by name.
    #[tokio::test]
    async fn an_annotation_reaches_the_api_although_the_status_is_unchanged() {
        let server = ApiServer::in_memory().unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web", "uid": "u1", "annotations": { "user": "x" } },
            "spec": { "containers": [{ "name": "main" }] }, "status": { "phase": "Running" },
        });
        let before = server.apply(object).unwrap();
        let client = kube::Client::new(server.service(), "default");
        let mut label =
            PodRef { namespace: "default".into(), name: "web".into(), uid: PodUid::new("u1") };
        let change = MetadataChange {
            annotations: [("a".to_owned(), Some("b".to_owned())), ("no".to_owned(), None)].into(),
            ..MetadataChange::default()
        };
        change_metadata(&client, &label, &change).await.unwrap();
        let there = server.get("pods/default/web").unwrap();
        assert_eq!(there["metadata"]["annotations"], json!({ "a": "b", "user": "x" }));
        assert_eq!(there["status"], before["status"]);
        label.uid = PodUid::new("another");
        let error = change_metadata(&client, &label, &change).await.unwrap_err();
        assert!(matches!(error, MetadataError::Gone { .. }), "{error}");
    }
}
