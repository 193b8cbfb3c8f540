//! The pods of a [`Status`](super::Status), rejected pods, and broken manifests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// A pod on the node.
// Over the limit because it is one object of the JSON format, and each field is a member of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The source of the pod: a manifest's path, or `api`.
    #[serde(default)]
    pub source: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// Whether the pod is critical: a static pod, or one with a system priority class.
    #[serde(default)]
    pub critical: bool,
    /// The QoS class: `Guaranteed`, `Burstable` or `BestEffort`.
    #[serde(default)]
    pub qos: String,
    /// `status.phase`.
    #[serde(default)]
    pub phase: String,
    /// `status.reason`; empty if unset.
    #[serde(default)]
    pub reason: String,
    /// `status.message`; empty if unset.
    #[serde(default)]
    pub message: String,
    /// The pod's lifecycle state.
    #[serde(default)]
    pub state: PodState,
    /// The pod's `Ready` condition: whether load balancers may send it requests. False from the moment that the node's
    /// shutdown begins, whatever the containers report.
    #[serde(default)]
    pub ready: bool,
    /// The number of containers that are ready.
    #[serde(default)]
    pub ready_containers: usize,
    /// The number of containers that should be ready: regular ones and sidecars.
    #[serde(default)]
    pub desired_containers: usize,
    /// How often containers of the pod were restarted.
    #[serde(default)]
    pub restarts: u32,
    /// When its first container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<WallTime>,
    /// Whole seconds until SIGKILL, while the pod is terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_left_seconds: Option<u64>,
    /// Whether the pod is stopping or has stopped, but starts again here when the node is back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_on_reboot: bool,
    /// The pod's containers, init containers first.
    #[serde(default)]
    pub containers: Vec<ContainerStatus>,
}

/// The lifecycle state of a pod. It only ever moves down this list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    /// The pod waits for another pod of the same name to terminate, or, with the reason `WaitingForPreemption`, for
    /// room.
    Waiting,
    /// The pod's containers are kept in the state that its spec requires.
    Syncing,
    /// The pod's containers are being stopped.
    Terminating,
    /// No container runs; the pod's resources are being freed.
    Terminated,
    /// Only the record of the pod is left.
    Finished,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A container of a pod.
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
    /// Why it waits or how it exited: `CrashLoopBackOff`, `Completed`, `OOMKilled`, …
    #[serde(default)]
    pub reason: String,
    /// Human-readable details; may be empty.
    #[serde(default)]
    pub message: String,
    /// The exit code of the last run; 128 + signal if a signal killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether the container is ready.
    #[serde(default)]
    pub ready: bool,
    /// How often the container was restarted.
    #[serde(default)]
    pub restarts: u32,
    /// When the present run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<WallTime>,
    /// When it exited, if it has and is not restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<WallTime>,
    /// How the previous run exited: while it waits to be restarted, that is the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_state: Option<LastState>,
    /// The log of the newest run; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

/// The `lastState` of a container, as Kubernetes has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastState {
    /// How the run exited.
    #[serde(default)]
    pub terminated: ExitedRun,
}

/// How a run of a container exited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitedRun {
    /// The exit code; 128 + signal if a signal killed it.
    #[serde(default)]
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, …
    #[serde(default)]
    pub reason: String,
    /// The termination message; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<WallTime>,
    /// When it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<WallTime>,
}

/// A pod that was rejected, and why.
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
    /// Human-readable details.
    #[serde(default)]
    pub message: String,
    /// Which pod has what it lacks, human-readable: `port 8200 is used by default/web`. Known of ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// When the pod was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
}

/// The manifests directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manifests {
    /// The path; empty if none is configured.
    pub directory: String,
    /// Problems in the directory. Pods of broken files keep running as last read.
    #[serde(default)]
    pub problems: Vec<ManifestProblem>,
}

/// A problem in a manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestProblem {
    /// The file.
    pub file: String,
    /// The line, counted from 1; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The path of the field, for example `spec.containers[0].image`; empty if unknown.
    #[serde(default)]
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
    /// When the problem was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
}
