//! The order in which pods are started after a boot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// The order in which the node's pods would be started after a boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartPlan {
    /// How long the next group waits for a group to become ready, in seconds; 0: all start at once.
    pub group_timeout_seconds: f64,
    /// The groups that have pods, in start order.
    pub groups: Vec<StartingGroup>,
    /// Problems that an operator may want to fix, human-readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A group of pods that start together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartingGroup {
    /// The group's name: `system pods`.
    pub name: String,
    /// The lowest priority in the group, or a number that only sorts it.
    pub priority: i32,
    /// Whether these are the drivers among the group's pods, which other pods need.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drivers: bool,
    /// The pods of the group.
    pub pods: Vec<StartingPod>,
}

/// A pod of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartingPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.priority`, 0 when unset.
    pub priority: i32,
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
}

/// The state of an ordered start while pods still wait for others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartStatus {
    /// The group that has to become ready.
    pub group: String,
    /// The pods of that group that are not ready, as `namespace/name`.
    pub not_ready: Vec<String>,
    /// When the next group starts in any case; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
    /// The number of pods that wait for their turn.
    pub waiting: usize,
}
