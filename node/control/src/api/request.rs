//! Requests that change the node's state, their responses, and errors.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use crate::Peer;

/// The body of `POST /v1/pods/{namespace}/{name}/kill`; an empty body is all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KillBody {
    /// Seconds between SIGTERM and SIGKILL, at least 1. Defaults to the pod's own; can only shorten a stop that is in
    /// progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
    /// Stops the pod only if it has this UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Refuses the request unless the pod starts again here when it has terminated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

/// Which part of which log of a pod is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// The container; the pod's first one if there is none.
    pub container: Option<String>,
    /// Whether what is written from now on is sent as well, until the container exits.
    pub follow: bool,
    /// Whether the log of the previous run is requested.
    pub previous: bool,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// How many of the last lines are sent; all if unset.
    pub tail_lines: Option<u64>,
}

impl LogQuery {
    /// How long the agent waits for a container to start whose log is followed. Clients wait longer.
    pub const START_TIMEOUT: Duration = Duration::from_secs(30);
}

/// The outcome of a request to stop a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KillAnswer {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// The time from the request to the exit of the last container, or to the response, in seconds.
    #[serde(default)]
    pub took_seconds: f64,
    /// Whether no container was running at the time of the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_terminated: bool,
    /// The containers that needed SIGKILL.
    #[serde(default)]
    pub forced: Vec<String>,
    /// Whether the pod still runs; the kill continues.
    #[serde(default)]
    pub still_running: bool,
    /// What still runs and why, human-readable; empty if the pod is gone.
    #[serde(default)]
    pub message: String,
    /// After a restart: whether the pod has completed, so that it does not start again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completed: bool,
}

/// The body of `POST /v1/drain`; an empty body is all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainRequest {
    /// The longest time that the drain may take, in seconds: 1 to a year. Defaults to the configured shutdown
    /// period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The reason, human-readable; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The caller, as identified by the control socket.
    #[serde(skip)]
    pub by: Option<Peer>,
}

/// The body of `POST /v1/notice`: the node will go away, whatever the agent does. Exactly one of `deadline` and
/// `inSeconds` must be given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NoticeBody {
    /// When the node will be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// The same in seconds from now, independent of changes to the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_seconds: Option<u64>,
    /// The reason, human-readable; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The caller, as identified by the control socket.
    #[serde(skip)]
    pub by: Option<Peer>,
}

/// The response to `DELETE /v1/notice`, which withdraws the operator's notice, or, if there is none, ends the drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WithdrawAnswer {
    /// Whether an operator's notice was withdrawn.
    pub withdrawn: bool,
    /// Whether a notice or a finished drain kept new pods out, and they are admitted again.
    pub opened: bool,
    /// Whether new pods are still not admitted.
    pub admission_closed: bool,
    /// What keeps admission closed, human-readable; empty if it is open.
    pub message: String,
    /// Why a restarted agent would not know of this, and what to do, human-readable; absent if it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// An event in the progress of a drain, one per line. The last one is [`Finished`](DrainEvent::Finished).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DrainEvent {
    /// The plan is made, and the first group is about to be asked to stop.
    Started {
        /// The number of groups that have pods.
        groups: usize,
        /// The number of pods in them.
        pods: usize,
        /// The longest time that the drain takes, in seconds.
        seconds: f64,
        /// Whether the container runtime has not reported the running pods yet, so that there may be more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pods_unknown: bool,
    },
    /// A restarted agent would not know of this drain, or an operator's earlier words are lost.
    Warning {
        /// What is wrong and what to do, human-readable.
        message: String,
    },
    /// A group was asked to stop.
    GroupStarted {
        /// The group's priority.
        priority: i32,
        /// The group's name, if pods are grouped by role: `ordinary pods`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The number of its pods.
        pods: usize,
        /// Its grace period, in seconds.
        seconds: f64,
    },
    /// A pod has stopped.
    PodTerminated {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// The time from the request to the exit of the last container, in seconds.
        took_seconds: f64,
        /// Whether it needed SIGKILL.
        forced: bool,
    },
    /// A pod still runs after its grace period.
    PodStillRunning {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// The reason, human-readable.
        message: String,
    },
    /// A pod runs on, because only the end of the node ends it: a kubelet would start it again.
    PodNotDrained {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// The reason, human-readable.
        message: String,
    },
    /// All pods of a group have stopped, or its time is over.
    GroupFinished {
        /// The group's priority.
        priority: i32,
        /// The group's name, if pods are grouped by role: `ordinary pods`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The duration in seconds.
        took_seconds: f64,
        /// The number of its pods that still run.
        still_running: usize,
    },
    /// The drain is finished.
    Finished {
        /// The number of pods that stopped.
        terminated: usize,
        /// How many of them needed SIGKILL.
        forced: usize,
        /// The number of pods that still run, without those that stay.
        still_running: usize,
        /// The duration in seconds.
        took_seconds: f64,
        /// Whether the container runtime never reported the running pods, so that there may have been more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pods_unknown: bool,
        /// Whether it was cancelled: the pods that had not been asked to stop run on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cancelled: bool,
    },
    /// An event that this version does not know; skipped.
    #[serde(other)]
    Unknown,
}

/// The effective configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The file that it was read from; empty if the defaults are in effect.
    pub file: String,
    /// The complete configuration as YAML, with defaults filled in.
    pub yaml: String,
    /// Warnings about it, human-readable.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The body of every error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The error code, for programs.
    #[serde(default)]
    pub code: ErrorCode,
    /// What is wrong, human-readable.
    pub error: String,
    /// What to do next, human-readable; empty if there is nothing to add.
    #[serde(default)]
    pub hint: String,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request is malformed or not allowed here (400, 405, 411, 413).
    BadRequest,
    /// The caller lacks permission (403).
    Forbidden,
    /// The pod, report or path does not exist (404).
    NotFound,
    /// The request conflicts with the current state, for example a drain while one is in progress (409).
    Conflict,
    /// The agent cannot answer now: too many clients, or it is starting or stopping (503).
    Unavailable,
    /// The agent failed internally (500), or the code is unknown to this version.
    #[default]
    #[serde(other)]
    Internal,
}
