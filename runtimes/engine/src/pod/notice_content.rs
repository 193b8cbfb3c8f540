//! The content of a pod's termination notice.

use std::sync::Arc;

use tokio::time::Instant;
use winddown_shared::{KillReason, NodeEnding};

/// Why a pod is being stopped or is about to be, and until when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NoticeContent {
    /// Why the pod itself is being stopped, if it is.
    pub(crate) own: Option<KillReason>,
    /// The announced end of all pods.
    pub(crate) all: Option<Arc<NodeEnding>>,
    /// When its remaining containers are killed.
    pub(crate) until: Instant,
}
