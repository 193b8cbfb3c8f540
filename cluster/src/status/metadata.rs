//! Labels and annotations that a provider gives a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use winddown_shared::PodLabel;

use winddown_api_client::refusal::Refusal;

/// What is to be changed of a pod's metadata. `None` takes a key away; what is not named stays.
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
    /// The pod is not there any more; one of its name may be.
    #[error("pod {pod} is gone")]
    Gone {
        /// Which pod.
        pod: PodLabel,
    },
    /// The API server did not do it. It may be tried again.
    #[error("cannot change the metadata of pod {pod}")]
    Api {
        /// Which pod.
        pod: PodLabel,
        /// What came back.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Changes labels and annotations of the pod with that UID, once.
///
/// A status never carries metadata along, so that an edit by a user in between is never undone.
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
