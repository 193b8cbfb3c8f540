//! The facts of a shutdown other than its pods.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{ShutdownKind, ShutdownRequest};

use crate::{Budget, NoticeReport};

/// What has been announced so far about the shutdown, and the time that it leaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunContext {
    pub(crate) budget: Budget,
    pub(crate) delay_set_by: Option<Arc<str>>,
    pub(crate) kind: ShutdownKind,
    pub(crate) request: Option<Arc<ShutdownRequest>>,
    /// When the login manager announced the shutdown, counted from the run's start.
    pub(crate) login_since: Option<Duration>,
    pub(crate) notice: Option<NoticeReport>,
}

impl RunContext {
    /// When the node goes down, counted from the run's start, if that was announced.
    pub(crate) fn node_is_gone(&self) -> Option<Duration> {
        let login = self.login_since.zip(self.budget.delay).map(|(since, delay)| since + delay);
        let notice = self.notice.as_ref().map(|notice| notice.deadline);
        login.into_iter().chain(notice).min()
    }
}
