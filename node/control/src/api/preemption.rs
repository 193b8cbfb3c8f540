//! The node's resources for pods, and the pods that would be preempted so that another fits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The free resources, the pods that wait for room, and, if a pod was named, what would be done for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionPlan {
    /// The strategy that selects victims: `distance` or `minimal`.
    pub strategy: String,
    /// The node's resources, in the order in which a shortage is reported; empty if unknown.
    #[serde(default)]
    pub resources: Vec<NodeResource>,
    /// Critical pods that currently wait for room.
    #[serde(default)]
    pub waiting: Vec<WaitingPod>,
    /// The result for the pod in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PreemptionCase>,
}

/// The amounts of one resource: CPU in millicores, `pods` in pods, everything else in base units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResource {
    /// The resource's name, for example `ephemeral-storage`.
    pub name: String,
    /// The node's total.
    pub capacity: i64,
    /// The amount that pods may request.
    pub allocatable: i64,
    /// The sum of all pods' requests, terminating pods included.
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
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// What the pod waits for, human-readable.
    #[serde(default)]
    pub message: String,
}

/// What would be done for a pod if it arrived now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionCase {
    /// `namespace/name`.
    pub pod: String,
    /// The outcome for the pod.
    pub verdict: RoomVerdict,
    /// The reason for a refusal, as the pod's status would show it: `OutOfcpu`, `NodeShutdown`, …; empty if the pod
    /// would not be refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of its status while it waits or if it is refused; empty if it would start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The resources that it lacks, with amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub insufficient: Vec<InsufficientResource>,
    /// The pods that would be stopped for it, `namespace/name`, in the order in which they are selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// The pods of the node, and why each would be stopped or kept; empty if nothing is lacking, or if the pod is not
    /// critical, so that no pod is stopped for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<ConsideredPod>,
}

/// A pod of the node, and why it would be stopped or kept.
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
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// How much of the lacking resources stopping it would not free: 0 if it frees all of them, plus 1 for each
    /// resource of which it frees nothing.
    #[serde(default)]
    pub distance: f64,
    /// `taken`, or why it is kept: `notPreemptable`, `classKept`, `farther`, …
    pub why: String,
    /// The reason, human-readable.
    #[serde(default)]
    pub text: String,
}

/// The lacking amount of a resource, in the unit of [`NodeResource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InsufficientResource {
    /// The resource's name.
    pub name: String,
    /// The amount.
    pub amount: i64,
}

/// The outcome for an arriving pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RoomVerdict {
    /// The pod would start.
    Starts,
    /// The pod would wait until pods that are terminating anyway have stopped.
    Waits,
    /// The pod would wait until its victims have stopped.
    Preempts,
    /// The pod would be refused.
    Rejected,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}
