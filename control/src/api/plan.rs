//! What a shutdown would do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::API_VERSION;

/// The plan of a shutdown that has not happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownPlan {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `ShutdownPlan`.
    pub kind: String,
    /// The time the configuration asks for, in seconds.
    pub requested_seconds: f64,
    /// How long pods are not ready before the first SIGTERM, in seconds; absent if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_drain_seconds: Option<f64>,
    /// How long after the signal the node is gone, as asked for, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<f64>,
    /// Set when logind, or the time that was asked for, allows less than the configuration asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<PlanShrink>,
    /// The container runtime has not said yet what runs: there may be more than is listed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pods_unknown: bool,
    /// The groups, in the order they would be ended.
    pub groups: Vec<PlannedGroup>,
    /// What plug-ins do before, between and after the groups, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<PlannedWork>,
    /// What an operator may want to fix, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why and how far a plan had to shrink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanShrink {
    /// The time there is for pods, in seconds.
    pub available_seconds: f64,
    /// The file that set logind's limit, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// Pods that are ended together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedGroup {
    /// The lowest priority that falls into the group. A number that only sorts it, if it has a name.
    pub priority: i32,
    /// What its pods are for, when that is what puts them together: `ordinary pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group's time, in seconds.
    pub shutdown_grace_period_seconds: f64,
    /// When its pods are gone at the latest, in seconds from the signal; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_end_seconds: Option<f64>,
    /// Its pods.
    pub pods: Vec<PlannedPod>,
}

/// What a plug-in does at a point of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedWork {
    /// Whose it is.
    pub plugin: String,
    /// What is done.
    pub what: String,
    /// At which point: `before the pods`, `after pods of priority 0`.
    pub point: String,
    /// The time that is kept for it, in seconds; absent where it gets what the pods leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// One pod of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPod {
    /// `metadata.namespace`.
    #[serde(default)]
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// The time between its SIGTERM and SIGKILL that it is guaranteed, in seconds.
    pub grace_seconds: f64,
    /// The grace its spec asks for, in seconds, when it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_grace_seconds: Option<f64>,
    /// When the node reboots it stays, and starts again on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_on_reboot: bool,
    /// It runs on through a soft-reboot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub survives_soft_reboot: bool,
    /// The disruption budgets that count it, which are asked before it is ended: beside a kubelet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disruption_budgets: Vec<PlannedBudget>,
    /// Its eviction responders, which are asked before it is ended: beside a kubelet, where the API server serves
    /// eviction requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eviction_responders: Vec<String>,
}

/// A `PodDisruptionBudget` that counts a pod of a plan, in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedBudget {
    /// `metadata.name`.
    pub name: String,
    /// How many of the pods that it counts may go now; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<u32>,
}

impl ShutdownPlan {
    /// A plan without groups.
    pub fn new(requested_seconds: f64) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "ShutdownPlan".to_owned(),
            requested_seconds,
            endpoint_drain_seconds: None,
            within_seconds: None,
            shrunk: None,
            pods_unknown: false,
            groups: Vec::new(),
            work: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Pods in all groups.
    pub fn pod_count(&self) -> usize {
        self.groups.iter().map(|group| group.pods.len()).sum()
    }
}
