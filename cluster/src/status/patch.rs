//! Computes the one patch that brings the API's status to the node's, or none.
//!
//! Pure. It is a strategic-merge patch of the `status` subresource with the pod's UID in it, so
//! that a later pod with the same name is never written to. It has only what changes, and only what
//! the node owns: conditions of the scheduler and of readiness gates are not touched.
//!
//! Guarantees for every patch, whatever the input:
//!
//! * The phase is never lowered, and a terminal one never changes.
//! * A terminal phase never comes with `Ready=True` (k8s#108594), and while a container may still
//!   run it is held back, with its reason and its `DisruptionTarget` condition.
//! * A container that has terminated stays so, unless its restart policy lets it run again.
//! * Once it is applied, the same input needs no further patch.

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use winddown_shared::WallTime;

#[cfg(any(test, fuzzing))]
pub(in crate::status) mod apply;
mod conditions;
mod containers;
mod difference;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod merge;
#[cfg(test)]
mod tests;

pub(crate) use conditions::{BY_NODE, DISRUPTION_TARGET};
pub(super) use containers::any_running;
pub(crate) use containers::end_unseen;
pub(super) use difference::undoes;

/// What the node reports about a pod.
#[derive(Clone, Copy, Debug)]
pub struct ReportedStatus<'a> {
    /// The status as the node sees it.
    pub status: &'a api::PodStatus,
    /// Whether nothing of the pod runs or will run.
    pub last: bool,
    /// `metadata.generation` of the spec that the status is about.
    pub generation: Option<i64>,
    /// The node's addresses, the primary one first.
    pub host_ips: &'a [String],
    /// The time of a transition that has no other.
    pub now: WallTime,
}

/// Returns the patch that brings `in_api`, the pod as the API has it, to what `reported` says; `None`
/// if nothing changes. A pod without a UID is never patched.
pub fn patch(in_api: &api::Pod, reported: &ReportedStatus<'_>) -> Option<Value> {
    let uid = in_api.metadata.uid.as_deref()?;
    let nothing = api::PodStatus::default();
    let before = in_api.status.as_ref().unwrap_or(&nothing);
    let after = merge::merge(in_api, before, reported);
    let changes = difference::difference(before, &after)?;
    Some(json!({ "metadata": { "uid": uid }, "status": changes }))
}
