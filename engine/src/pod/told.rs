//! What a pod was told of its end.

use std::sync::Arc;

use tokio::time::Instant;
use winddown_shared::{KillReason, NodeEnding};

/// Why a pod ends, or is about to, and until when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Why it was asked to end, if it was.
    pub(crate) own: Option<KillReason>,
    /// What is known of the end of all pods.
    pub(crate) all: Option<Arc<NodeEnding>>,
    /// When what runs of it is killed.
    pub(crate) until: Instant,
}
