//! Labels and annotations that a node agent gives to a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use winddown_shared::PodLabel;

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
        pod: PodLabel,
    },
    /// The API server did not make the change. It may be retried.
    #[error("cannot change the metadata of pod {pod}")]
    Api {
        /// The pod.
        pod: PodLabel,
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
    pod: &PodLabel,
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
