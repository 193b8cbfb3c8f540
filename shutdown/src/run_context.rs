//! The facts of a shutdown other than its pods.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{ShutdownKind, ShutdownRequest};

use crate::{Budget, DelayedBy, NoticeReport};

/// What has been announced so far about the shutdown, and the time that it leaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunContext {
    pub(crate) budget: Budget,
    pub(crate) delayed_by: DelayedBy,
    pub(crate) delay_set_by: Option<Arc<str>>,
    pub(crate) kind: ShutdownKind,
    pub(crate) request: Option<Arc<ShutdownRequest>>,
    /// When the login manager announced the shutdown, counted from the run's start.
    pub(crate) login_since: Option<Duration>,
    pub(crate) notice: Option<NoticeReport>,
}

/// Until when the node waits for this agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeLimit {
    /// Counted from the run's start.
    pub(crate) until: Duration,
    pub(crate) delayed_by: DelayedBy,
    pub(crate) set_by: Option<Arc<str>>,
}

impl RunContext {
    /// When the node goes down, counted from the run's start, if that was announced.
    pub(crate) fn node_is_gone(&self) -> Option<Duration> {
        let notice = self.notice.as_ref().map(|notice| notice.deadline);
        self.budget.delay.into_iter().chain(notice).min()
    }

    /// Shortens the run to a limit that is sooner than the one before, but leaves it `least`.
    pub(crate) fn shorten(&mut self, limit: TimeLimit, least: Duration) {
        // Of two that are the same, the one that is set somewhere says more.
        let is_sooner = |before| (limit.until, limit.set_by.is_none()) <= (before, false);
        if self.budget.delay.is_none_or(is_sooner) {
            self.budget = self.budget.within(limit.until.max(least));
            self.budget.delay = Some(limit.until);
            (self.delayed_by, self.delay_set_by) = (limit.delayed_by, limit.set_by);
        }
    }
}
