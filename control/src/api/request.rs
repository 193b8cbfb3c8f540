//! What changes the node's state, and the answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use crate::Peer;

/// The body of `POST /v1/pods/{namespace}/{name}/kill`; an empty body is all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KillBody {
    /// Seconds between SIGTERM and SIGKILL, at least 1. The pod's own when absent; it can only
    /// shorten a stop that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
    /// Only end the pod if it has this UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// How a pod that was asked to end came to its end.
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
    /// From the request to the last container's exit, or to the answer, in seconds.
    #[serde(default)]
    pub took_seconds: f64,
    /// Nothing of it ran any more when it was asked to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub had_ended: bool,
    /// Containers that needed SIGKILL.
    #[serde(default)]
    pub forced: Vec<String>,
    /// The pod still runs; the kill goes on.
    #[serde(default)]
    pub still_running: bool,
    /// What still runs and why, for people; empty when the pod is gone.
    #[serde(default)]
    pub message: String,
}

/// The body of `POST /v1/drain`; an empty body is all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainRequest {
    /// The longest time it may take, in seconds. The configured shutdown period when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Why, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Who asks, as the control socket knows it.
    #[serde(skip)]
    pub by: Option<Peer>,
}

/// The body of `POST /v1/notice`: the node goes away, whatever the agent does. Exactly one of
/// `deadline` and `inSeconds` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NoticeBody {
    /// When the node is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<WallTime>,
    /// The same as seconds from now; setting the wall clock does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_seconds: Option<u64>,
    /// Why, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Who gives it, as the control socket knows it.
    #[serde(skip)]
    pub by: Option<Peer>,
}

/// The answer to `DELETE /v1/notice`, which takes the operator's notice back, or ends the drain when
/// there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WithdrawAnswer {
    /// There was an operator's notice, and it is taken back.
    pub withdrawn: bool,
    /// No pod was let in, because of a notice or after a drain, and pods are again.
    pub opened: bool,
    /// No new pod is let in all the same.
    pub admission_closed: bool,
    /// What keeps it closed, for people; empty when it is open.
    pub message: String,
}

/// One line of a drain's progress. The last one is [`Finished`](DrainEvent::Finished).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DrainEvent {
    /// The plan is made and the first group is about to be asked.
    Started {
        /// Groups that have pods.
        groups: usize,
        /// Pods in them.
        pods: usize,
        /// The longest time it takes, in seconds.
        seconds: f64,
        /// The container runtime has not said yet what runs: there may be more pods.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pods_unknown: bool,
    },
    /// A group was asked to end.
    GroupStarted {
        /// The group's priority.
        priority: i32,
        /// Its name, when its pods are together for what they are for: `ordinary pods`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its pods.
        pods: usize,
        /// Its time, in seconds.
        seconds: f64,
    },
    /// A pod is gone.
    PodEnded {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// From the request to the last container's exit, in seconds.
        took_seconds: f64,
        /// It needed SIGKILL.
        forced: bool,
    },
    /// A pod still runs although its time is over.
    PodLeft {
        /// `metadata.namespace`.
        namespace: String,
        /// `metadata.name`.
        name: String,
        /// Why, for people.
        message: String,
    },
    /// Nothing of a group runs any more, or its time is over.
    GroupEnded {
        /// The group's priority.
        priority: i32,
        /// Its name, when its pods are together for what they are for: `ordinary pods`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// How long it took, in seconds.
        took_seconds: f64,
        /// Its pods that still run.
        left: usize,
    },
    /// The drain is over.
    Finished {
        /// Pods that are gone.
        ended: usize,
        /// Those of them that needed SIGKILL.
        forced: usize,
        /// Pods that still run.
        left: usize,
        /// How long it took, in seconds.
        took_seconds: f64,
        /// The container runtime did not say what runs: there may have been more pods.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pods_unknown: bool,
    },
    /// A word this version does not know; skipped.
    #[serde(other)]
    Unknown,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The file it was read from; empty when the defaults are in force.
    pub file: String,
    /// All of it, defaults filled in, as YAML.
    pub yaml: String,
    /// What was noticed in it, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// For programs.
    #[serde(default)]
    pub code: ErrorCode,
    /// What is wrong, for people.
    pub error: String,
    /// What to do next, for people; empty when there is nothing to add.
    #[serde(default)]
    pub hint: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The request is not understood (400, 405, 411, 413).
    BadRequest,
    /// The caller may not do this (403).
    Forbidden,
    /// There is no such pod, report or page (404).
    NotFound,
    /// It cannot be done now, for example a drain while one is under way (409).
    Conflict,
    /// The agent cannot answer now: too many callers, or it is starting or stopping (503).
    Unavailable,
    /// Something failed inside the agent (500), or a word this version does not know.
    #[default]
    #[serde(other)]
    Internal,
}
