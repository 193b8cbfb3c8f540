//! The seam to whoever gives notice that the node ends at a certain time: a cloud's metadata
//! service, a battery, an operator.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// Somebody outside ends this node at `deadline`, whatever the node does.
///
/// This is state: a notice is in force until it is replaced or withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who gave it, in one word: `file`, `operator`, `aws`, `azure`, `gcp`.
    pub source: Arc<str>,
    /// What was said, for people: `spot instance is terminated at 12:00:05`.
    pub text: Arc<str>,
    /// When it was heard; the budget counts from here.
    pub since: Instant,
    /// When the node is gone. Nothing may be planned past it.
    pub deadline: Instant,
}

/// The notice in force, if any. The earliest deadline wins when several are.
pub type Notices = watch::Receiver<Option<Arc<Notice>>>;
