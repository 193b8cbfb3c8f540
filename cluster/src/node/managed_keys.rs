//! Which parts of the Node object winddown manages.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use serde::{Deserialize, Serialize};

use super::cordon::{CORDONED_BY, TAINTED_BY};

/// The annotation that records which keys of the Node object this agent applied. An agent that
/// starts with other facts uses it to remove what an earlier one applied, and nothing else.
///
/// It has keys but no values: a managed value is always written as the facts have it, so the old
/// one is not needed. Each patch that adds or removes a key updates the record in the same request,
/// so a crash leaves no unrecorded keys behind.
pub const LAST_APPLIED: &str = "winddown.dev/last-applied";

/// Managed keys by section of the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ManagedKeys {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) labels: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) annotations: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) capacity: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) allocatable: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) conditions: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) addresses: BTreeSet<String>,
}

/// An address in the record: it has no key but itself.
pub(super) fn address_key(address: &NodeAddress) -> String {
    format!("{}={}", address.type_, address.address)
}

/// Whether this module writes the annotation itself: it never belongs to the facts.
pub(super) fn is_reserved(annotation: &str) -> bool {
    [LAST_APPLIED, CORDONED_BY, TAINTED_BY].contains(&annotation)
}

impl ManagedKeys {
    /// The keys that the Node object records. An unreadable record counts as empty: nothing is
    /// removed, and the next patch writes a valid one.
    pub(super) fn of(node: &Node) -> Self {
        let text = node.metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The annotation's value.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
