//! The node's state in its cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

/// The node's state in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `cluster` or `companion`.
    pub mode: String,
    /// Whether the API server is reachable.
    #[serde(default)]
    pub api: ApiStatus,
    /// Whether the API server has a Node object for this node; absent if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<bool>,
    /// Problems with the Node object or the lease, human-readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// How long ago the node's lease was last renewed, in seconds; absent before the first renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_age_seconds: Option<u64>,
    /// The number of pods whose latest status the API server does not have yet.
    #[serde(default)]
    pub statuses_waiting: usize,
    /// The number of final statuses that are kept on disk until the API server has them.
    #[serde(default)]
    pub spooled: usize,
    /// The number of API pods that wait to be started, updated or stopped here.
    #[serde(default)]
    pub pods_waiting: usize,
    /// Whether the pods that the API assigns to this node are known.
    #[serde(default)]
    pub pods_known: bool,
    /// The nodes that shut down before this one; absent unless configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_nodes: Option<AfterNodesStatus>,
    /// When the client certificate expires; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires: Option<WallTime>,
    /// Why the client certificate is not renewed although that is due, and what to do; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_problem: Option<String>,
}

impl ClusterStatus {
    /// Whether a kubelet runs the pods, and the agent terminates them.
    pub fn is_beside_kubelet(&self) -> bool {
        self.mode == "companion"
    }
}

/// The nodes that shut down before this one (`shutdownAfterNodes`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AfterNodesStatus {
    /// The label selector that selects these nodes.
    pub selector: String,
    /// The longest time that a shutdown waits for them, in seconds.
    pub wait_seconds: f64,
    /// The matching nodes, without this one; absent while they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<AfterNode>>,
    /// Why the API server does not report their progress; absent while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether a shutdown is waiting for them now.
    pub waiting: bool,
}

/// A node that shuts down before this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AfterNode {
    /// The node's name.
    pub name: String,
    /// The stage of its shutdown, according to its Node object.
    pub stage: NodeStage,
}

/// The stage of another node's shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeStage {
    /// The node never reports clean shutdowns, because winddown does not run on it.
    NotReporting,
    /// The node is up, or went down without a report.
    Up,
    /// The node is shutting down.
    ShuttingDown,
    /// The node has reported a clean shutdown.
    Down,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The state of the connection to the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiStatus {
    /// The state in one word.
    pub state: ApiState,
    /// When the state last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// Why the API server is unreachable, and what to do; absent while it is reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ApiStatus {
    /// What is wrong with the API server, and why, as text for users; `None` if it can be used, or was not asked yet.
    pub fn trouble(&self) -> Option<String> {
        let what = match self.state {
            ApiState::Unreachable => "the API server cannot be reached",
            ApiState::Unauthorized => "the API server rejects the credentials",
            ApiState::Untrusted => "TLS with the API server fails",
            ApiState::Unsigned => "there are no credentials for the API server",
            ApiState::Connected | ApiState::Unknown => return None,
        };
        Some(self.why.as_ref().map_or_else(|| what.to_owned(), |why| format!("{what}: {why}")))
    }
}

/// The result of the latest requests to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApiState {
    /// The API server answers.
    Connected,
    /// The API server does not answer.
    Unreachable,
    /// The API server answers, but rejects the credentials.
    Unauthorized,
    /// TLS with the API server fails: one side does not accept the other's certificate.
    Untrusted,
    /// The certificate that the API server requires has not been signed yet.
    Unsigned,
    /// No request was made yet, or the value is unknown to this version.
    #[default]
    #[serde(other)]
    Unknown,
}
