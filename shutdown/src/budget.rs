//! Divides the time between the signal and the moment the node goes down.

use std::time::Duration;

use winddown_shared::{InhibitorState, LockState};

use crate::{BudgetReport, Policy};

#[cfg(test)]
mod tests;

/// The pods' deadline, counted from the signal, and the reserve after it.
///
/// ```text
/// signal            pods            kills_until   abandon   report_until   delay
///   |----- groups -----|-- SIGKILL takes --|---------|-- report --|----------|
///                      |<------------------ reserve -------------------------->|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// The time that the policy asks for: the endpoint drain and all groups.
    pub requested: Duration,
    /// The time that the pods get: `requested`, or less if the login manager waits for less.
    pub pods: Duration,
    /// The time kept back after that.
    pub reserve: Duration,
    /// Until when the login manager (`InhibitDelayMaxSec`) or the service manager waits, counted from the run's start, if
    /// known.
    pub delay: Option<Duration>,
}

impl Budget {
    /// Divides the login manager's `delay`. An unknown delay is assumed to be enough.
    ///
    /// The reserve is never more than a tenth of the delay, so that a short delay still goes to
    /// the pods.
    pub fn new(policy: &Policy, delay: Option<Duration>) -> Self {
        let requested = policy.requested();
        let reserve = delay.map_or(policy.reserve(), |delay| policy.reserve().min(delay / 10));
        let given = delay.map_or(requested, |delay| delay.saturating_sub(reserve));
        Self { requested, pods: requested.min(given), reserve, delay }
    }

    /// Divides the time of a shutdown that a login manager in this state would announce.
    pub fn of_login(policy: &Policy, login: &InhibitorState) -> Self {
        Self::new(policy, login_waits(login))
    }

    /// Divides the time until the deadline of a notice, `total` after the run's start. All of it except
    /// the reserve goes to the pods, even if that is more than the policy asks for: a node that is lost
    /// anyway has no use for it.
    pub fn of_notice(policy: &Policy, total: Duration) -> Self {
        let reserve = policy.reserve().min(total / 10);
        Self { requested: policy.requested(), pods: total - reserve, reserve, delay: None }
    }

    /// Reduces the budget to a node that goes down `total` after the run's start. Never increases it.
    pub fn within(self, total: Duration) -> Self {
        let reserve = self.reserve.min(total / 10);
        Self { pods: self.pods.min(total - reserve), reserve, ..self }
    }

    /// Returns the budget of a run without an external limit: the pods get `time`.
    pub fn of_drain(policy: &Policy, time: Duration) -> Self {
        Self { requested: time, pods: time, reserve: policy.reserve(), delay: None }
    }

    /// How long to wait for the results of stops, so that pods that get SIGKILL at the deadline are still
    /// seen to exit.
    pub fn kills_until(&self) -> Duration {
        self.pods + self.reserve / 2
    }

    /// When to give up on a killer that does not answer even at its own deadline.
    pub fn abandon_at(&self) -> Duration {
        self.kills_until() + self.reserve / 8
    }

    /// When the report must be on disk. After that, the node is released without it.
    pub fn report_until(&self) -> Duration {
        self.pods + self.reserve / 8 * 7
    }
}

/// How long the login manager waits for this agent; `None` if it does not, or if that is not known. The service manager,
/// which stops the agent's unit at once then, waits as long as the policy wants.
pub(crate) fn login_waits(login: &InhibitorState) -> Option<Duration> {
    login.delay.filter(|delay| login.has_lock && !delay.is_zero())
}

/// Why the login manager does not wait for this agent, to follow "does not wait for this agent"; none if it does.
pub fn why_unawaited(login: &InhibitorState) -> Option<String> {
    let set_by =
        || login.delay_set_by.as_ref().map_or(String::new(), |file| format!(" (set by {file})"));
    match &login.lock {
        _ if login.has_lock && login.delay.is_some_and(|delay| delay.is_zero()) => {
            Some(format!(": logind's InhibitDelayMaxSec is 0{}", set_by()))
        }
        LockState::Waiting { why } | LockState::Absent { why } if !login.has_lock => {
            Some(format!(", which held no inhibitor lock: {why}"))
        }
        _ => None,
    }
}

impl BudgetReport {
    pub(crate) fn budget(&self) -> Budget {
        let Self { requested, pods, reserve, delay, .. } = *self;
        Budget { requested, pods, reserve, delay }
    }
}

/// Truncates `duration` to whole seconds.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}
