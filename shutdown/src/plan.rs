//! Which pod ends in which group, with how much time. Pure.

use std::fmt;
use std::time::Duration;

use winddown_shared::{Pod, PodLabel};

use crate::Policy;
use crate::budget::whole_seconds;

mod share;
#[cfg(test)]
mod tests;

/// A shutdown as it will go: groups in the order in which they end.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ascending priority; groups without pods included.
    pub groups: Vec<Group>,
    /// The sum of all configured periods.
    pub requested: Duration,
    /// When the last group's time is over, counted from the signal.
    pub deadline: Duration,
    /// Present when less time is available than the policy asks for.
    pub shrunk: Option<Shrink>,
}

/// The pods that end together.
#[derive(Clone, Debug)]
pub struct Group {
    /// The lowest priority that belongs here; lower ones do too if this is the first group.
    pub priority: i32,
    /// What the policy gives.
    pub configured: Duration,
    /// What the group is guaranteed, in whole seconds. Less than `configured` only in a shrunk plan.
    pub allowed: Duration,
    /// When the group's time is over at the latest, counted from the signal. A group that starts
    /// early has the time until here: what earlier groups saved, and what later ones without pods
    /// do not need.
    pub latest_end: Duration,
    /// In the order of the snapshot.
    pub pods: Vec<PlannedPod>,
}

/// One pod and the time it is guaranteed between SIGTERM and SIGKILL.
#[derive(Clone, Debug)]
pub struct PlannedPod {
    /// The pod.
    pub pod: Pod,
    /// Its own `terminationGracePeriodSeconds`, at most what its group is allowed.
    pub grace: Duration,
}

/// By how much a plan had to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrink {
    /// What the policy asks for.
    pub requested: Duration,
    /// What there is for the pods.
    pub available: Duration,
}

/// Something about a plan that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanWarning {
    /// There is less time than the policy asks for.
    Shrunk(Shrink),
    /// A pod asks for more time than it is sure to get.
    GraceCut {
        /// The pod.
        pod: PodLabel,
        /// Its own grace.
        wants: Duration,
        /// What it gets for sure.
        gets: Duration,
        /// What it gets if all groups before it end at once.
        at_most: Duration,
    },
}

/// Plans a shutdown of `pods`.
///
/// A pod belongs to the last group whose priority is not above its own, or to the first group; a
/// pod without a priority counts as 0. With no groups the plan is empty: nothing is ended.
///
/// When `available` (counted from the signal) is less than the policy asks for, the plan shrinks.
/// First goes the time of groups without pods; then time that no pod of the group asks for; then
/// the longest groups are cut to a common length until the rest fits, so no group falls below an
/// equal share. Left-over seconds go to the highest priorities. More time never shortens anyone's.
pub fn plan(pods: &[Pod], policy: &Policy, available: Option<Duration>) -> Plan {
    let requested = policy.requested();
    let mut groups: Vec<Group> = policy
        .groups()
        .iter()
        .map(|group| Group {
            priority: group.priority,
            configured: group.period,
            allowed: group.period,
            latest_end: Duration::ZERO,
            pods: Vec::new(),
        })
        .collect();
    for pod in pods {
        if let Some(group) = group_index(&groups, pod) {
            groups[group].pods.push(PlannedPod { pod: pod.clone(), grace: Duration::ZERO });
        }
    }

    let deadline = available.map_or(requested, |available| available.min(requested));
    let shrunk = (deadline < requested).then_some(Shrink { requested, available: deadline });
    if shrunk.is_some() {
        shrink(&mut groups, deadline);
    }
    for group in &mut groups {
        for planned in &mut group.pods {
            planned.grace = planned.pod.own_grace().unwrap_or(group.allowed).min(group.allowed);
        }
    }
    let mut plan = Plan { groups, requested, deadline, shrunk };
    plan.set_latest_ends();
    plan
}

// === impl Plan ===

impl Plan {
    /// How many pods the plan ends.
    pub fn pod_count(&self) -> usize {
        self.groups.iter().map(|group| group.pods.len()).sum()
    }

    /// Moves the deadline to `deadline` if that is later: every group may use the added time.
    /// For a drain, whose time the operator gives.
    pub fn extend_to(&mut self, deadline: Duration) {
        self.deadline = self.deadline.max(deadline);
        self.set_latest_ends();
    }

    /// The same plan for a run that begins this long after the signal.
    pub(crate) fn begun_after(mut self, delay: Duration) -> Self {
        self.deadline += delay;
        self.set_latest_ends();
        self
    }

    /// What the operator should know before it happens.
    pub fn warnings(&self) -> Vec<PlanWarning> {
        let cuts = self.groups.iter().flat_map(|group| {
            group.pods.iter().filter_map(|planned| {
                let wants = planned.pod.own_grace().filter(|own| *own > planned.grace)?;
                let at_most = wants.min(group.latest_end);
                let pod = planned.pod.label().clone();
                Some(PlanWarning::GraceCut { pod, wants, gets: planned.grace, at_most })
            })
        });
        self.shrunk.map(PlanWarning::Shrunk).into_iter().chain(cuts).collect()
    }

    /// The group that `pod` belongs to; none in an empty plan.
    pub(crate) fn group_of(&self, pod: &Pod) -> Option<usize> {
        group_index(&self.groups, pod)
    }

    fn set_latest_ends(&mut self) {
        let mut end = self.deadline;
        for group in self.groups.iter_mut().rev() {
            group.latest_end = end;
            if !group.pods.is_empty() {
                end = end.saturating_sub(group.allowed);
            }
        }
    }
}

// === impl PlanWarning ===

impl fmt::Display for PlanWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shrunk(Shrink { requested, available }) => write!(
                f,
                "the groups ask for {requested:?} but only {available:?} is available: the plan \
                 is shortened"
            ),
            Self::GraceCut { pod, wants, gets, at_most } if gets == at_most => {
                write!(f, "pod {pod} asks for {wants:?} and gets {gets:?}")
            }
            Self::GraceCut { pod, wants, gets, at_most } => write!(
                f,
                "pod {pod} asks for {wants:?} and is sure of {gets:?} (up to {at_most:?} if the \
                 groups before it end sooner)"
            ),
        }
    }
}

/// `groups` ascend. Linear in pods over all, logarithmic in groups.
fn group_index(groups: &[Group], pod: &Pod) -> Option<usize> {
    if groups.is_empty() {
        return None;
    }
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let not_above = groups.partition_point(|group| group.priority <= priority);
    Some(not_above.saturating_sub(1))
}

fn shrink(groups: &mut [Group], available: Duration) {
    let seconds = available.as_secs();
    let used: Vec<u64> = groups.iter().map(|group| useful_time(group).as_secs()).collect();
    let mut shares = share::level(&used, seconds);

    // What no pod asked for still helps a slow stop, so spare seconds go back where they came from.
    let spare = seconds - shares.iter().sum::<u64>();
    let rest: Vec<u64> = groups
        .iter()
        .zip(&used)
        .map(|(group, used)| match group.pods.is_empty() {
            true => 0,
            false => group.configured.as_secs() - used,
        })
        .collect();
    for (share, more) in shares.iter_mut().zip(share::level(&rest, spare)) {
        *share += more;
    }
    for (group, share) in groups.iter_mut().zip(shares) {
        group.allowed = Duration::from_secs(share);
    }
}

/// The longest time any pod of the group asks for, within the group's period. One second at least:
/// no stop takes less.
fn useful_time(group: &Group) -> Duration {
    let longest =
        group.pods.iter().map(|planned| planned.pod.own_grace().unwrap_or(group.configured)).max();
    longest.map_or(Duration::ZERO, |longest| {
        whole_seconds(longest).max(Duration::from_secs(1)).min(group.configured)
    })
}
