//! The interface to sources of notices that the node goes down at a certain time: a cloud's
//! metadata service, a battery, an operator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The furthest deadline of a notice. It keeps times derived from it within the range of clocks and
/// of the records of a run.
pub const LONGEST_NOTICE: Duration = Duration::from_secs(365 * 24 * 3600);

/// An announcement that an outside party takes this node down at `deadline`, which nothing can prevent.
///
/// This is state: a notice is in force until it is replaced or withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Short name of the source: `file`, `operator`, `aws`, `azure`, `gcp`.
    pub source: Arc<str>,
    /// The text of the notice, for people: `spot instance is terminated at 12:00:05`.
    pub text: Arc<str>,
    /// When the notice was received; the budget counts from here.
    pub since: Instant,
    /// When the node is gone. Nothing may be planned past it.
    pub deadline: Instant,
}

/// The state of all sources of notices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeState {
    /// The notices in force, the earliest deadline first.
    pub in_effect: Vec<Arc<Notice>>,
    /// The sources that were read since the agent started, whatever they announce.
    pub heard: BTreeSet<Arc<str>>,
    /// The sources that are still to be read: it is unknown whether they announce anything.
    pub unheard: BTreeSet<Arc<str>>,
}

/// A receiver of the state of all sources of notices.
pub type Notices = watch::Receiver<NoticeState>;
