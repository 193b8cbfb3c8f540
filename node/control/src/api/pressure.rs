//! Eviction: the available resources, the pods that would be evicted, and past decisions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use super::API_VERSION;

/// The node's resource pressure and eviction thresholds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PressureStatus {
    /// The conditions that hold: `MemoryPressure`, `DiskPressure`, `PIDPressure`.
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
    pub away: Vec<AwayStatus>,
}

/// An eviction threshold, and the available amount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The total amount: bytes, inodes or tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// How long the threshold has been met, in seconds; absent if it is not met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_seconds: Option<f64>,
    /// How long the threshold must be met before a pod is evicted for it, in seconds.
    #[serde(default)]
    pub grace_seconds: f64,
}

/// The node's swap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// Whether free swap counts as available memory: `memoryAvailable: memAvailableAndSwap`.
    #[serde(default)]
    pub counts: bool,
}

/// A static pod that was evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwayStatus {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The earliest time of its readmission, in seconds from now.
    pub back_in_seconds: f64,
}

/// The pods that would be evicted if a resource ran short now, and past decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionPlan {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `EvictionPlan`.
    pub kind: String,
    /// The node's pressure and thresholds.
    #[serde(flatten)]
    pub pressure: PressureStatus,
    /// The signal that the pods are ranked by: the requested one, or the one nearest to its threshold; absent if
    /// nothing is watched or nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The pods in eviction order.
    #[serde(default)]
    pub pods: Vec<RankedPodStatus>,
    /// The latest decisions, oldest first; at most 64.
    #[serde(default)]
    pub history: Vec<EvictionRecord>,
}

/// A pod in a ranking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RankedPodStatus {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// Its usage: bytes, inodes or processes; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<i64>,
    /// Its swap usage in bytes, if the signal measures memory; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// The memory that its compressed pages (zswap) occupy, in bytes; absent without zswap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// Its request.
    #[serde(default)]
    pub request: i64,
    /// The verdict: `chosen`, `notNeeded`, `critical`, `notMeasured`, `ending`, `stuck`.
    pub verdict: String,
}

/// The run of the hook before an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionHookRun {
    /// How long the eviction waited for the hook, in ms.
    pub took_ms: u64,
    /// Why the hook failed; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 4 KiB of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// An eviction decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRecord {
    /// The number of the decision, counted from 1.
    pub id: u64,
    /// When the decision was made.
    pub at: WallTime,
    /// The signal or limit that caused the decision.
    pub signal: String,
    /// The least amount that should be available; absent for a limit of the pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The amount that was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// Whether the pod got one second only.
    #[serde(default)]
    pub hard: bool,
    /// How long the resource had been short, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_for_ms: Option<u64>,
    /// `namespace/name` of the pod that was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// The outcome, human-readable.
    #[serde(default)]
    pub outcome: String,
    /// The run of the hook before the pod was asked to stop; absent if no hook is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<EvictionHookRun>,
    /// The first ten pods in eviction order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<RankedPodStatus>,
    /// How often the same decision was made about this signal before the next eviction.
    #[serde(default)]
    pub times: u64,
}

impl EvictionPlan {
    /// Creates a plan without pods.
    pub fn new(pressure: PressureStatus) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "EvictionPlan".to_owned(),
            pressure,
            signal: None,
            pods: Vec::new(),
            history: Vec::new(),
        }
    }
}
