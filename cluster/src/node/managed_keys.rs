//! Which parts of the Node object winddown manages.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};

use super::cordon::{CORDONED_BY, TAINTED_BY};

/// The annotation that remembers which keys of the Node object this agent applied. With it, an agent
/// that starts with other facts takes off what the earlier one had put there, and nothing else.
///
/// It holds keys and no values: a value of ours is always written as the facts have it, so the old
/// one is of no use. Each patch that adds or drops a key changes the record with it, in one
/// request: a crash leaves no unclaimed keys behind.
pub const LAST_APPLIED: &str = "winddown.dev/last-applied";

/// Keys by section of the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ManagedKeys {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) labels: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) annotations: BTreeSet<String>,
    /// `key:effect`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) taints: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) capacity: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) allocatable: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) conditions: BTreeSet<String>,
}

/// A taint's identity.
pub(super) fn taint_key(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

/// Annotations that this module writes for itself: never the facts' and never dropped with them.
pub(super) fn is_reserved(annotation: &str) -> bool {
    [LAST_APPLIED, CORDONED_BY, TAINTED_BY].contains(&annotation)
}

impl ManagedKeys {
    /// What the Node object says is ours. A record that cannot be read claims nothing: then
    /// nothing is taken off, and the next patch writes a good one.
    pub(super) fn of(node: &Node) -> Self {
        let text = node.metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// As the annotation's value.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
