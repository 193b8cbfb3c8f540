//! Properties that hold for anything the API server may send. Called by tests/fuzz.

use k8s_openapi::api::core::v1 as api;
use serde::Deserialize;

use crate::{mirror, status};

/// The input of [`api_object`].
#[derive(Deserialize)]
struct Case {
    pod: api::Pod,
    #[serde(default)]
    said: api::PodStatus,
}

/// Reads `{"pod": …, "said": …}`: a pod as the API has it, and a status that the node reports for
/// it. Panics if a property does not hold.
pub fn api_object(json: &[u8]) {
    let Ok(case) = serde_json::from_slice::<Case>(json) else { return };
    status::fuzzing::laws(&case.pod, &case.said);
    let Ok(pod) = winddown_shared::Pod::new(case.pod) else { return };
    let mirrored = mirror::mirror_of(&pod, "node1", "uid-1", winddown_shared::WallTime::UNIX_EPOCH);
    let owners = mirrored.metadata.owner_references.unwrap_or_default();
    assert!(owners.iter().any(|owner| owner.kind == "Node"), "a mirror belongs to its node");
}

#[test]
fn any_object_of_the_api_keeps_the_laws() {
    winddown_fuzz::short("api_objects", api_object);
}
