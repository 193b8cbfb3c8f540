//! What is shown of the node's pressure. The JSON forms are a stable interface.

use serde::{Deserialize, Serialize};

use crate::{EvictionRecord, RankedPodStatus};

/// The pods that would be evicted if a resource ran short now, and past decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EvictionPlan {
    /// The node's pressure and thresholds.
    #[serde(flatten)]
    pub pressure: PressureStatus,
    /// The signal that the pods are ranked by: the requested one, or the one nearest to its threshold; absent if
    /// nothing is watched or nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Whether no pod would be evicted yet: those that are terminating free enough, or one of them was evicted for this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// The pods in eviction order.
    #[serde(default)]
    pub pods: Vec<RankedPodStatus>,
    /// The latest decisions, oldest first; at most 64.
    #[serde(default)]
    pub history: Vec<EvictionRecord>,
}

/// The node's resource pressure and eviction thresholds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PressureStatus {
    /// The types of the node's conditions that hold.
    pub conditions: Vec<String>,
    /// Whether eviction is a dry run, in which no pod is evicted and no condition is reported.
    pub shadow: bool,
    /// All thresholds, as of the last sample.
    pub thresholds: Vec<ThresholdStatus>,
    /// The node's swap as of the last sample; absent if the node has none or it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapStatus>,
    /// Static pods that were evicted and are readmitted when the pressure is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_readmission: Vec<PendingReadmission>,
}

/// An eviction threshold, and the available amount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ThresholdStatus {
    /// The signal: `memory.available`, …
    pub signal: String,
    /// Whether this is a hard threshold, where evicted pods get one second only.
    pub hard: bool,
    /// The least amount that should be available; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The available amount; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// The total amount, in the signal's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// How long the threshold has been met, in seconds; absent if it is not met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_for_seconds: Option<f64>,
    /// How long the threshold must be met before a pod is evicted for it, in seconds.
    #[serde(default)]
    pub grace_seconds: f64,
}

/// The node's swap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SwapStatus {
    /// The total amount.
    pub total: u64,
    /// The free amount.
    pub free: u64,
    /// The memory that compressed pages (zswap) occupy; absent without zswap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// The size of these pages before compression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswapped: Option<u64>,
}

/// A static pod that was evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PendingReadmission {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The earliest time of its readmission, in seconds from now.
    pub readmission_in_seconds: f64,
}
