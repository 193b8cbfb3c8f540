//! How the node stands with its cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// How the node stands with its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `cluster` or `companion`.
    pub mode: String,
    /// Whether the API server can be reached.
    #[serde(default)]
    pub api: ApiStatus,
    /// Whether there is a Node object of this node; absent where that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<bool>,
    /// What is wrong with the Node object or the lease, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// How long ago the node's lease was renewed, in seconds; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_age_seconds: Option<u64>,
    /// Pods of which the API server does not have the latest status.
    #[serde(default)]
    pub statuses_waiting: usize,
    /// Last statuses that are kept on disk until the API server has them.
    #[serde(default)]
    pub spooled: usize,
    /// Pods of the API that wait to be started, changed or ended here.
    #[serde(default)]
    pub pods_waiting: usize,
    /// The pods that the API wants on this node are known.
    #[serde(default)]
    pub pods_known: bool,
    /// The nodes that go down before this one; absent unless configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_nodes: Option<AfterNodesStatus>,
    /// When the client certificate ends, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_ends: Option<WallTime>,
}

/// The nodes that go down before this one (`shutdownAfterNodes`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AfterNodesStatus {
    /// Which they are, as a label selector.
    pub selector: String,
    /// How long a shutdown waits for them at most, in seconds.
    pub wait_seconds: f64,
    /// Those that match, without this one; absent while they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<AfterNode>>,
    /// Why the API server does not say how far they are; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// A shutdown waits for them now.
    pub waiting: bool,
}

/// A node that goes down before this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AfterNode {
    /// Its name.
    pub name: String,
    /// How far it is, by its Node object.
    pub stage: NodeStage,
}

/// How far another node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeStage {
    /// It never reports clean shutdowns: winddown is not on it.
    Silent,
    /// It is up, or went down without a report.
    Up,
    /// It is going down.
    GoingDown,
    /// It has reported a clean shutdown.
    Down,
    /// One of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Whether the API server can be reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiStatus {
    /// In one word.
    pub state: ApiState,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// Why it cannot be reached, and what to do; absent while it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What the last requests to the API server showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApiState {
    /// It answers.
    Connected,
    /// It does not.
    Unreachable,
    /// It answers, and does not accept the credentials.
    Unauthorized,
    /// The certificate that it wants has not been signed yet.
    Unsigned,
    /// No request was made yet, or the value is one of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}
