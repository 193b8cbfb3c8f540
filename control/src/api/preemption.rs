//! What the node has for pods, and who would end so that another fits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::API_VERSION;

/// How much room there is, who waits for some, and, if a pod was named, what would be done for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionPlan {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `PreemptionPlan`.
    pub kind: String,
    /// How victims are chosen: `distance` or `minimal`.
    pub strategy: String,
    /// What the node has, in the order in which a lack is reported; empty when that is not known.
    #[serde(default)]
    pub resources: Vec<NodeResource>,
    /// Critical pods that wait for room now.
    #[serde(default)]
    pub waiting: Vec<WaitingPod>,
    /// The pod that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PreemptionCase>,
}

/// How much of one resource there is: cpu in thousandths, `pods` in pods, all else in base units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResource {
    /// Its name, for example `ephemeral-storage`.
    pub name: String,
    /// What the node has.
    pub capacity: i64,
    /// What pods may have of it.
    pub allocatable: i64,
    /// What the pods of the node ask for together, those that are ending included.
    pub used: i64,
}

/// A pod that waits for room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// What it waits for, for people.
    #[serde(default)]
    pub message: String,
}

/// What would be done for a pod if it came now, when all that is ending has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionCase {
    /// `namespace/name`.
    pub pod: String,
    /// What would become of it.
    pub verdict: RoomVerdict,
    /// Why it would be refused, as its status would have it: `OutOfcpu`, `NodeShutdown`, …; empty
    /// when it would not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of its status while it waits or when it is refused; empty when it would start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What is lacking for it: resource and amount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Lacking>,
    /// Who would end for it, `namespace/name`, in the order in which they are chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// The pods of the node and why each would be ended or kept; empty when nothing is lacking, or
    /// when the pod is not critical and no pod is ended for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<ConsideredPod>,
}

/// One pod of the node, and what would become of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsideredPod {
    /// `namespace/name`.
    pub pod: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    #[serde(default)]
    pub qos: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// How far what it frees is from what is lacking: 0 when it frees all of it, 1 more for each
    /// resource of which it frees nothing.
    #[serde(default)]
    pub distance: f64,
    /// `taken`, or why it is kept: `notPreemptable`, `classKept`, `farther`, …
    pub why: String,
    /// The same for people.
    #[serde(default)]
    pub text: String,
}

/// How much of a resource is lacking, in the unit of [`NodeResource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lacking {
    /// The resource's name.
    pub name: String,
    /// How much of it.
    pub amount: i64,
}

/// What would become of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RoomVerdict {
    /// It would start.
    Starts,
    /// It would wait until others have ended for it.
    Preempts,
    /// It would be refused.
    Refused,
    /// A word this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PreemptionPlan {
    /// A plan of a node of which nothing is known yet.
    pub fn new(strategy: impl Into<String>) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "PreemptionPlan".to_owned(),
            strategy: strategy.into(),
            resources: Vec::new(),
            waiting: Vec::new(),
            pod: None,
        }
    }
}
