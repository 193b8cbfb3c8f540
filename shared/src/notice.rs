//! The seam to sources of notices that the node ends at a certain time: a cloud's metadata service,
//! a battery, an operator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// No notice's deadline is farther ahead. It keeps what is counted from it within the range of clocks,
/// and of what is kept of a run.
pub const LONGEST_NOTICE: Duration = Duration::from_secs(365 * 24 * 3600);

/// An outside party ends this node at `deadline`, which nothing can prevent.
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

/// What the sources of notices say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeState {
    /// The notice in force, if any. The earliest deadline wins when several are.
    pub in_force: Option<Arc<Notice>>,
    /// The sources that were read since the agent started, whatever they announce. Of others it is
    /// unknown whether they announce anything.
    pub heard: BTreeSet<Arc<str>>,
}

/// Follows what the sources of notices say.
pub type Notices = watch::Receiver<NoticeState>;
