//! How the time between the signal and the node's end is divided.

use std::time::Duration;

use crate::{BudgetReport, Policy};

#[cfg(test)]
mod tests;

/// One deadline, counted from the signal, and what comes after it.
///
/// ```text
/// signal            pods            kills_until   abandon   report_until   delay
///   |----- groups -----|-- SIGKILL takes --|---------|-- report --|----------|
///                      |<------------------ reserve -------------------------->|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What the policy asks for: the sum of all groups.
    pub requested: Duration,
    /// What the pods get: `requested`, or less when the login manager waits for less.
    pub pods: Duration,
    /// What is kept back after that.
    pub reserve: Duration,
    /// The login manager's limit (`InhibitDelayMaxSec`), where known.
    pub delay: Option<Duration>,
}

impl Budget {
    /// Divides what the login manager gives. An unknown `delay` is taken to be enough.
    ///
    /// The reserve is never more than a tenth of the delay, so that a short delay still goes to
    /// the pods.
    pub fn new(policy: &Policy, delay: Option<Duration>) -> Self {
        let requested = policy.requested();
        let reserve = delay.map_or(policy.reserve(), |delay| policy.reserve().min(delay / 10));
        let given = delay.map_or(requested, |delay| delay.saturating_sub(reserve));
        Self { requested, pods: requested.min(given), reserve, delay }
    }

    /// The time until the end that a notice names, `total` after the run's start. All of it but the
    /// reserve goes to the pods, also when that is more than the policy asks for: a node that is
    /// lost anyway has no use for it.
    pub fn of_notice(policy: &Policy, total: Duration) -> Self {
        let reserve = policy.reserve().min(total / 10);
        Self { requested: policy.requested(), pods: total - reserve, reserve, delay: None }
    }

    /// The same when the node is gone `total` after the run's start. Only ever less.
    pub fn within(self, total: Duration) -> Self {
        let reserve = self.reserve.min(total / 10);
        Self { pods: self.pods.min(total - reserve), reserve, ..self }
    }

    /// The budget of a run without an outside limit: the pods get `time`.
    pub fn of_drain(policy: &Policy, time: Duration) -> Self {
        Self { requested: time, pods: time, reserve: policy.reserve(), delay: None }
    }

    /// How long an answer is awaited: a pod that got SIGKILL at the deadline is seen to be gone.
    pub fn kills_until(&self) -> Duration {
        self.pods + self.reserve / 2
    }

    /// When a killer that does not even answer at its own deadline is given up.
    pub fn abandon_at(&self) -> Duration {
        self.kills_until() + self.reserve / 8
    }

    /// When the report must be on disk; after that the node goes without it.
    pub fn report_until(&self) -> Duration {
        self.pods + self.reserve / 8 * 7
    }
}

impl BudgetReport {
    /// What it is the report of.
    pub(crate) fn budget(&self) -> Budget {
        let Self { requested, pods, reserve, delay, .. } = *self;
        Budget { requested, pods, reserve, delay }
    }
}

/// `duration` without its fraction of a second.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}
