//! The operator's policy: which pods form a group, and how long each group gets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::budget::whole_seconds;
use crate::{GroupReport, InPlacePolicy, Role, ShutdownReport};

#[cfg(test)]
mod tests;

/// The lowest priority of the critical group in the two-field form: `system-cluster-critical`.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The most that all groups together may ask for.
pub(crate) const MAX_GROUPS_TOTAL: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time kept back at the end of a shutdown, unless configured otherwise.
const DEFAULT_RESERVE: Duration = Duration::from_secs(2);

/// One entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The time the group's pods get, in seconds.
    pub shutdown_grace_period_seconds: i64,
}

/// The groups, the time before them and the time after them. Valid by construction.
///
/// ```
/// use std::time::Duration;
///
/// use winddown_shutdown::{GroupPeriod, Policy};
///
/// // 60 s in all, the last 30 of them for all but ordinary pods.
/// let by_role = Policy::by_role(Duration::from_secs(60), Duration::from_secs(30))?;
/// assert_eq!(by_role, Policy::default());
/// // Groups of your own: each has the pods from its priority up to that of the next.
/// let group = |priority, seconds| GroupPeriod { priority, shutdown_grace_period_seconds: seconds };
/// let own = Policy::by_priority([group(0, 20), group(10_000, 20), group(2_000_000_000, 10)])?;
/// assert!(own.delay_wanted() >= Duration::from_secs(50));
/// # Ok::<(), winddown_shutdown::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    groups: Groups,
    /// Whether they are those of `shutdownGracePeriodByPodPriority`.
    is_listed: bool,
    endpoint_drain: Duration,
    reserve: Duration,
    in_place: InPlacePolicy,
}

/// How a [`Policy`] forms groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    /// By ranges of priorities, ascending. An empty list disables the policy.
    ByPriority(Vec<GroupPolicy>),
    /// By the pods' roles; without a total, disabled. In whole seconds; `later` is the part that is kept for pods other than
    /// ordinary ones.
    ByRole { total: Duration, later: Duration },
}

/// One group of a [`Policy`]. The period is in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPolicy {
    pub(crate) priority: i32,
    pub(crate) period: Duration,
}

/// The error for a shutdown configuration that contradicts itself.
///
/// Where the kubelet has a message for the error, it is used, because people search for it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The critical pods' period is longer than the whole.
    #[error(
        "invalid configuration: shutdownGracePeriodCriticalPods {{{critical}}} must be <= \
         shutdownGracePeriod {{{total}}}"
    )]
    CriticalLongerThanTotal {
        /// `shutdownGracePeriod`, as Go writes it.
        total: String,
        /// `shutdownGracePeriodCriticalPods`, as Go writes it.
        critical: String,
    },
    /// A period is between zero and one second.
    #[error("invalid configuration: {field} {{{value}}} must be either zero or otherwise >= 1 sec")]
    BelowOneSecond {
        /// The field's name.
        field: &'static str,
        /// Its value, as Go writes it.
        value: String,
    },
    /// Both forms are given.
    #[error(
        "invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and \
         shutdownGracePeriod at the same time"
    )]
    BothForms,
    /// A group's period is negative.
    #[error(
        "shutdownGracePeriodByPodPriority: priority {priority}: shutdownGracePeriodSeconds is \
         {seconds}; give 0 or more"
    )]
    Negative {
        /// The group's priority.
        priority: i32,
        /// The configured period.
        seconds: i64,
    },
    /// All groups together ask for more than a year.
    #[error("the shutdown grace periods add up to more than a year; shorten them")]
    TooLong,
}

/// What winddown does when nothing is configured: groups by role, 60 s in all, the last 30 of them for all but ordinary
/// pods.
impl Default for Policy {
    fn default() -> Self {
        let (total, later) = (Duration::from_secs(60), Duration::from_secs(30));
        Self { groups: Groups::ByRole { total, later }, ..Self::disabled() }
    }
}

impl Policy {
    /// Returns a policy that stops no pods: shutdowns are not delayed.
    pub fn disabled() -> Self {
        Self {
            groups: Groups::ByPriority(Vec::new()),
            is_listed: false,
            endpoint_drain: Duration::ZERO,
            reserve: DEFAULT_RESERVE,
            in_place: InPlacePolicy::new(),
        }
    }

    /// Creates a policy from `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`.
    ///
    /// There are two groups: priority 0 gets `total - critical`, priority 2000000000 gets `critical`,
    /// each truncated to whole seconds. A total of zero disables the policy.
    ///
    /// # Errors
    /// Fails if `critical` exceeds `total`, if either is between zero and one second, or if `total` is more
    /// than a year.
    pub fn from_periods(total: Duration, critical: Duration) -> Result<Self, PolicyError> {
        let ordinary = check_periods(total, critical)?;
        if total.is_zero() {
            return Ok(Self::disabled());
        }
        let group = |priority, period| GroupPolicy { priority, period: whole_seconds(period) };
        Ok(Self {
            groups: Groups::ByPriority(vec![
                group(0, ordinary),
                group(CRITICAL_PRIORITY, critical),
            ]),
            ..Self::disabled()
        })
    }

    /// Creates a policy from the same two fields, with groups by [`Role`](crate::Role): ordinary pods get
    /// `total - critical` plus what the others do not ask for; the others share `critical` plus what
    /// ordinary pods do not ask for. A total of zero disables the policy; a drain is by role all the same.
    ///
    /// # Errors
    /// The same as for [`Policy::from_periods`].
    pub fn by_role(total: Duration, critical: Duration) -> Result<Self, PolicyError> {
        check_periods(total, critical)?;
        let (total, later) = (whole_seconds(total), whole_seconds(critical));
        Ok(Self { groups: Groups::ByRole { total, later }, ..Self::disabled() })
    }

    /// Creates a policy from `shutdownGracePeriodByPodPriority`, in any order. An empty list disables the
    /// policy. Of a priority that is listed twice the last entry counts.
    ///
    /// # Errors
    /// Fails if a group's time is negative, or the sum is more than a year.
    pub fn by_priority(groups: impl IntoIterator<Item = GroupPeriod>) -> Result<Self, PolicyError> {
        let mut by_priority = BTreeMap::new();
        for GroupPeriod { priority, shutdown_grace_period_seconds: seconds } in groups {
            let Ok(whole) = u64::try_from(seconds) else {
                return Err(PolicyError::Negative { priority, seconds });
            };
            by_priority.insert(priority, Duration::from_secs(whole));
        }
        let total = by_priority.values().copied().fold(Duration::ZERO, Duration::saturating_add);
        if total > MAX_GROUPS_TOTAL {
            return Err(PolicyError::TooLong);
        }
        let sorted =
            by_priority.into_iter().map(|(priority, period)| GroupPolicy { priority, period });
        let groups = Groups::ByPriority(sorted.collect());
        Ok(Self { groups, is_listed: true, ..Self::disabled() })
    }

    /// The policy that `run` was planned by, as far as its report says; for the rest `now`. For an agent that finds the run
    /// under way and has been configured to stop no pods.
    pub(crate) fn of_run(run: &ShutdownReport, now: &Self) -> Self {
        let is_named =
            |name: &str| run.groups.iter().any(|group| group.name.as_deref() == Some(name));
        let is_by_role = Role::ALL.iter().any(|role| is_named(role.name()));
        let groups = match is_by_role {
            true => {
                let ordinary = GroupReport::priorities_of_ordinary_pods(&run.groups);
                let later = run.groups.iter().filter(|group| !ordinary.contains(&group.priority));
                let later: Duration = later.map(|group| group.configured).sum();
                let total = whole_seconds(run.budget.requested);
                Groups::ByRole { total, later: later.min(total) }
            }
            false => {
                let listed = run.groups.iter().filter(|group| group.name.is_none());
                let group =
                    |of: &GroupReport| GroupPolicy { priority: of.priority, period: of.configured };
                Groups::ByPriority(listed.map(group).collect())
            }
        };
        Self { groups, ..now.clone() }
    }

    /// Keeps `reserve` back at the end of a shutdown for the report and final statuses (2 s by default).
    /// It is used in full only if the login manager gives at least ten times as much.
    pub fn with_reserve(self, reserve: Duration) -> Self {
        Self { reserve: reserve.min(MAX_GROUPS_TOTAL), ..self }
    }

    /// Makes pods not ready for `drain` before the first SIGTERM, so that load balancers stop sending
    /// them traffic (k8s#116965). This is in addition to the groups' time.
    pub fn with_endpoint_drain(self, drain: Duration) -> Self {
        Self { endpoint_drain: drain.min(MAX_GROUPS_TOTAL), ..self }
    }

    /// Lets pods of these namespaces stay while the node reboots if they ask for it ([`may_stay`](crate::may_stay)).
    pub fn with_in_place(self, in_place: InPlacePolicy) -> Self {
        Self { in_place, ..self }
    }

    /// The namespaces whose pods may stay while the node reboots.
    pub fn in_place(&self) -> &InPlacePolicy {
        &self.in_place
    }

    /// What an operator raises in the configuration for pods that get less time than they ask for, human-readable. The
    /// two forms exclude each other: a configuration with both is refused.
    pub fn what_to_raise(&self) -> &'static str {
        match self.is_listed {
            true => "the group's seconds in shutdownGracePeriodByPodPriority",
            false => "shutdownGracePeriod (for critical pods shutdownGracePeriodCriticalPods too)",
        }
    }

    /// Whether a shutdown stops pods at all.
    pub fn is_enabled(&self) -> bool {
        match &self.groups {
            Groups::ByPriority(groups) => !groups.is_empty(),
            Groups::ByRole { total, .. } => !total.is_zero(),
        }
    }

    /// The time from the signal to the end of the last group: the endpoint drain and all groups,
    /// populated or not.
    pub fn requested(&self) -> Duration {
        self.endpoint_drain() + self.periods()
    }

    /// The total time of all groups, populated or not.
    pub(crate) fn periods(&self) -> Duration {
        match &self.groups {
            Groups::ByPriority(groups) => groups.iter().map(|group| group.period).sum(),
            Groups::ByRole { total, .. } => *total,
        }
    }

    /// How long pods are not ready before the first SIGTERM; zero if the policy is disabled.
    pub fn endpoint_drain(&self) -> Duration {
        if self.is_enabled() { self.endpoint_drain } else { Duration::ZERO }
    }

    /// The delay to request from the login manager: the endpoint drain, the groups' time and the reserve.
    pub fn delay_wanted(&self) -> Duration {
        if self.is_enabled() { self.requested() + self.reserve } else { Duration::ZERO }
    }

    /// The configured reserve at the end of a shutdown.
    pub fn reserve(&self) -> Duration {
        self.reserve
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }
}

/// Validates the two periods and returns the ordinary pods' part of `total`.
fn check_periods(total: Duration, critical: Duration) -> Result<Duration, PolicyError> {
    for (field, value) in
        [("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)]
    {
        if !value.is_zero() && value < Duration::from_secs(1) {
            return Err(PolicyError::BelowOneSecond { field, value: go_text(value) });
        }
    }
    if total > MAX_GROUPS_TOTAL {
        return Err(PolicyError::TooLong);
    }
    total.checked_sub(critical).ok_or_else(|| PolicyError::CriticalLongerThanTotal {
        total: go_text(total),
        critical: go_text(critical),
    })
}

/// Formats a duration as Go does, for messages that people search for.
pub(crate) fn go_text(duration: Duration) -> String {
    winddown_shared::GoDuration::try_from(duration)
        .map_or_else(|_| format!("{}s", duration.as_secs()), |go| go.to_string())
}
