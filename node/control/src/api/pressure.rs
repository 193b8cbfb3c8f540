//! Eviction: the available resources, the pods that would be evicted, and past decisions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_eviction::{EvictionRecord, PressureStatus, RankedPodStatus};

use super::API_VERSION;

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
