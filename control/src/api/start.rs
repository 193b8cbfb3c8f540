//! The order in which pods start after a boot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use super::API_VERSION;

/// In which order the node's pods would start after a boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartPlan {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `StartPlan`.
    pub kind: String,
    /// How long a group may take to be ready before the next one starts, in seconds; 0: all start at once.
    pub group_timeout_seconds: f64,
    /// The groups that have pods, in the order in which they start.
    pub groups: Vec<StartingGroup>,
    /// What an operator may want to fix, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Pods that start together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartingGroup {
    /// What it is called: `system pods`.
    pub name: String,
    /// The lowest priority that falls into the group, or a number that only sorts it.
    pub priority: i32,
    /// It has the drivers among those pods, which the others need.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drivers: bool,
    /// Its pods.
    pub pods: Vec<StartingPod>,
}

/// One pod of a group.
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
}

/// An ordered start in which pods wait for others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartStatus {
    /// The group that is waited for.
    pub group: String,
    /// Those of its pods that are not ready, as `namespace/name`.
    pub not_ready: Vec<String>,
    /// When the next group starts all the same; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallTime>,
    /// How many pods wait for their turn.
    pub waiting: usize,
}

impl StartPlan {
    /// A plan without groups.
    pub fn new(group_timeout_seconds: f64) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "StartPlan".to_owned(),
            group_timeout_seconds,
            groups: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
