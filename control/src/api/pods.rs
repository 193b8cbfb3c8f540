//! The pods of a [`Status`](super::Status), and what is wrong with those that are not there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// One pod on the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Where the pod came from: a manifest's path, or `api`.
    #[serde(default)]
    pub source: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// The pod is critical: a static pod, or of a system priority class.
    #[serde(default)]
    pub critical: bool,
    /// QoS class: `Guaranteed`, `Burstable` or `BestEffort`.
    #[serde(default)]
    pub qos: String,
    /// `status.phase`.
    #[serde(default)]
    pub phase: String,
    /// `status.reason`; empty when there is none.
    #[serde(default)]
    pub reason: String,
    /// `status.message`; empty when there is none.
    #[serde(default)]
    pub message: String,
    /// Where the pod is in its life.
    #[serde(default)]
    pub state: PodState,
    /// The pod's `Ready` condition: load balancers may send it requests. False from the moment
    /// the node's shutdown begins, whatever the containers say.
    #[serde(default)]
    pub ready: bool,
    /// Containers that are ready.
    #[serde(default)]
    pub ready_containers: usize,
    /// Containers that should be ready: regular ones and sidecars.
    #[serde(default)]
    pub wanted_containers: usize,
    /// How often containers of the pod were started again.
    #[serde(default)]
    pub restarts: u32,
    /// When its first container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<WallTime>,
    /// Whole seconds until SIGKILL, while it is ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_left_seconds: Option<u64>,
    /// It ends, or has ended, and starts again here when the node is back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
    /// Its containers, init containers first.
    #[serde(default)]
    pub containers: Vec<ContainerStatus>,
}

/// Where a pod is in its life. It only ever moves down this list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// It waits: for another pod of the same name to end, or, with the reason `WaitingForPreemption`, for
    /// room.
    Waiting,
    /// Its containers are kept as its spec asks.
    Syncing,
    /// Its containers are being stopped.
    Terminating,
    /// None of its containers runs; what it held is being freed.
    Terminated,
    /// Nothing of it is left but its record.
    Finished,
    /// A word this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// The name in the pod's spec.
    pub name: String,
    /// `init`, `sidecar` or `regular`.
    #[serde(default)]
    pub kind: String,
    /// `waiting`, `running` or `exited`.
    #[serde(default)]
    pub state: String,
    /// Why it waits or how it ended: `CrashLoopBackOff`, `Completed`, `OOMKilled`, …
    #[serde(default)]
    pub reason: String,
    /// For people; may be empty.
    #[serde(default)]
    pub message: String,
    /// Exit code of the run that ended; 128 + signal for a signal's victim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// It is ready.
    #[serde(default)]
    pub ready: bool,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u32,
}

/// A pod that was refused, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `status.reason`, for example `NodeShutdown`.
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// When it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
}

/// The manifests directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manifests {
    /// Its path; empty when none is configured.
    pub directory: String,
    /// What is wrong in it. The pods these files described before keep running.
    #[serde(default)]
    pub problems: Vec<ManifestProblem>,
}

/// One thing wrong with one manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestProblem {
    /// The file.
    pub file: String,
    /// The line, from 1, if one can be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The field's path, for example `spec.containers[0].image`; empty if none can be named.
    #[serde(default)]
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
    /// When it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
}
