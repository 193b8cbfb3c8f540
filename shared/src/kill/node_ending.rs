//! The coming termination of all pods of a node, as a listener learns of it.

use tokio::time::Instant;

use crate::{KillReason, RequestReport, ShutdownKind};

/// The coming termination of all pods of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnding {
    /// [`KillReason::Shutdown`] or [`KillReason::Drain`].
    pub reason: KillReason,
    /// How the node goes down; `None` if it stays up.
    pub node_action: Option<ShutdownKind>,
    /// The time by which the last pod has terminated, as far as is known. Updates only bring it closer.
    pub deadline: Instant,
    /// The requester, as far as is known.
    pub requested_by: Option<RequestReport>,
    /// The notice that announced it: its source, a colon, and its text.
    pub notice: Option<String>,
}
