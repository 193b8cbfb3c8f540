//! What is left of what, who would end when it runs short, and who did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use super::API_VERSION;

/// How near the node is to its eviction thresholds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PressureStatus {
    /// The conditions that hold: `MemoryPressure`, `DiskPressure`, `PIDPressure`.
    pub conditions: Vec<String>,
    /// Eviction only watches: no pod is ended and no condition is reported.
    pub shadow: bool,
    /// All thresholds, as the last look at the node has them.
    pub thresholds: Vec<ThresholdStatus>,
    /// The node's swap, as the last look at the node has it; absent on a node without, or while it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapStatus>,
    /// Static pods that were evicted and come back when the pressure is over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<AwayStatus>,
}

/// One threshold, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThresholdStatus {
    /// `memory.available`, …
    pub signal: String,
    /// Whether pods get one second only.
    pub hard: bool,
    /// The least there should be; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// What there is; absent while it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// What there is in all: bytes, inodes or tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<i64>,
    /// For how long it has been met, in seconds; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_seconds: Option<f64>,
    /// How long it has to be met before a pod ends for it, in seconds.
    #[serde(default)]
    pub grace_seconds: f64,
}

/// Swap of the node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwapStatus {
    /// All there is.
    pub total: u64,
    /// What of it is free.
    pub free: u64,
    /// The memory that compressed pages take; absent without zswap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// What these pages were before they were compressed.
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
    /// In how many seconds it comes back at the earliest.
    pub back_in_seconds: f64,
}

/// Who would end if something ran short now, and what was decided before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionPlan {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `EvictionPlan`.
    pub kind: String,
    /// How the node stands.
    #[serde(flatten)]
    pub pressure: PressureStatus,
    /// By what the pods are ranked: what was asked for, or what is nearest to its threshold; absent
    /// when nothing is watched, or nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The pods in the order in which they would end.
    #[serde(default)]
    pub pods: Vec<RankedPodStatus>,
    /// The last decisions, the newest last; at most 64.
    #[serde(default)]
    pub history: Vec<EvictionRecord>,
}

/// One pod of a ranking.
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
    /// What it uses: bytes, inodes or processes; absent when it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<i64>,
    /// What it has in swap, in bytes, for a signal of memory; absent when that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// What of its memory compressed pages take, in bytes; absent without zswap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// What it asked for.
    #[serde(default)]
    pub request: i64,
    /// What would be made of it: `chosen`, `notNeeded`, `critical`, `notMeasured`, `ending`, `stuck`.
    pub verdict: String,
}

/// What ran before a pod was asked to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionHookRun {
    /// How long the pod's end waited for it, in ms.
    pub took_ms: u64,
    /// Why it did not succeed; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 4 KiB of what it wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRecord {
    /// Counts up from 1.
    pub id: u64,
    /// When it was made.
    pub at: WallTime,
    /// For what.
    pub signal: String,
    /// The least there should be; absent for a limit of the pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// What there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// Whether the pod got one second only.
    #[serde(default)]
    pub hard: bool,
    /// How long it had been short, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_for_ms: Option<u64>,
    /// `namespace/name` of the pod that was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// What came of it, for people.
    #[serde(default)]
    pub outcome: String,
    /// What ran before the pod was asked to end; absent where nothing is configured to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<EvictionHookRun>,
    /// The first ten pods in the order in which they would have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<RankedPodStatus>,
    /// The memory around it; absent if no pod was chosen, or for something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<MemoryCurve>,
    /// How often the same was decided again, this time included.
    #[serde(default)]
    pub times: u64,
}

/// The memory that was available from three minutes before an eviction to half a minute after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryCurve {
    /// The time of one value, in seconds.
    pub seconds_each: u64,
    /// The least that was available in each such time, in bytes; null where nothing was measured.
    pub available: Vec<Option<i64>>,
    /// The index of the value in whose time the pod was chosen.
    pub chosen_at: usize,
    /// The least there should be, in bytes.
    pub threshold: i64,
}

impl EvictionPlan {
    /// A plan without pods.
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
