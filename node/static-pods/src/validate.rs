//! Finds what the kubelet refuses in a pod from a file (`ValidatePodCreate` and `PreventStaticPodAPIReferences` of
//! Kubernetes 1.36), as a list of rules for each object.
//!
//! The pod has the API's defaults already. What differs from the kubelet on purpose stands in docs/pod-fields.md.

mod affinity;
mod annotations;
mod container;
mod env;
mod field_ref;
mod handler;
mod metadata;
mod mount;
mod names;
mod network;
mod port;
mod resources;
mod restart;
mod rules;
mod scheduling;
mod security;
mod selector;
mod spec;
mod spread;
mod volume;

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::FieldCheck;

/// Reports all problems of `pod`, which has its defaults, but is not bound to the node yet.
pub(super) fn pod(check: &mut FieldCheck<'_>, pod: &api::Pod, node_name: &str) {
    check.key("metadata", |check| metadata::all(check, pod, node_name));
    match &pod.spec {
        Some(spec) => {
            check.key("spec", |check| spec::all(check, spec, node_name));
            annotations::contradictions(check, pod);
        }
        None => check.fail_at("spec", "is missing: a pod needs a spec with containers"),
    }
}
