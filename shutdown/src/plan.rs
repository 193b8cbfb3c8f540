//! The shutdown plan: which pod stops in which group, with how much time. Pure.

use std::borrow::Cow;
use std::time::Duration;

use winddown_shared::{Grace, Pod, ShutdownWork};

use crate::budget::whole_seconds;
use crate::policy::Groups;
use crate::role::is_driver;
use crate::{Budget, Policy, Role, may_stay, may_survive};

/// The most groups that ordinary pods are divided into: each takes a part of the time.
const ORDINARY_GROUPS: usize = 8;

mod divide;
mod rest;
mod share;
#[cfg(test)]
mod tests;
mod warning;
mod work;

pub use warning::PlanWarning;
pub use work::PlannedWork;
pub(crate) use work::WorkPlace;

/// The plan of a shutdown.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The groups in the order in which they stop, which is that of their priorities. Includes groups
    /// without pods.
    pub groups: Vec<Group>,
    /// The sum of the endpoint drain and all configured periods.
    pub requested: Duration,
    /// How long pods are not ready before the first group gets SIGTERM, counted from the signal.
    /// Zero without pods. If time is short, this is cut before the time that pods ask for.
    pub endpoint_drain: Duration,
    /// When the last group's time is over, counted from the signal.
    pub deadline: Duration,
    /// Set when less time is available than the policy asks for.
    pub shortened: Option<Shrink>,
    /// The pods that no group takes, because the policy has no groups: they are killed when the node goes down.
    pub not_protected: Vec<Pod>,
    /// The work of plug-ins between the groups, in the order in which it is done.
    pub work: Vec<PlannedWork>,
    /// The policy that the plan was made by.
    policy: Policy,
}

/// The pods that stop together.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Group {
    /// The lowest priority in this group; the first group also takes lower ones. For a role,
    /// [`Role::priority`].
    pub priority: i32,
    /// The role of its pods, if the group is a role.
    pub role: Option<Role>,
    /// The time that the policy gives it. For a role, computed from the pods that exist.
    pub configured: Duration,
    /// The time that the group is guaranteed, in whole seconds. Less than `configured` only if the plan is
    /// short of time.
    pub allowed: Duration,
    /// When the group's time is over at the latest, counted from the signal. A group that starts early
    /// has all the time until then: what earlier groups saved, and what later groups without pods do not
    /// need.
    pub latest_end: Duration,
    /// The pods, in the order of the snapshot.
    pub pods: Vec<PlannedPod>,
}

/// One pod and the time it is guaranteed between SIGTERM and SIGKILL.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedPod {
    /// The pod.
    pub pod: Pod,
    /// The pod's own `terminationGracePeriodSeconds`, limited to what its group is allowed.
    pub grace: Duration,
}

/// By how much a plan had to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shrink {
    /// The time that the policy asks for.
    pub requested: Duration,
    /// The time that is available for the pods.
    pub available: Duration,
}

/// Plans a shutdown of `pods`.
///
/// With groups by priority, a pod belongs to the last group whose priority is not above its own, or else
/// to the first group; a pod without a priority counts as 0. A driver ([`Role`]) belongs at least to the
/// last group that has time: if it stopped before the pods whose volumes it serves, these would stay
/// mounted. With groups by role, ordinary pods are further divided by priority: each distinct priority
/// makes a group, and the lowest ones share a group if there are more than eight. Within a group, drivers
/// and mirror pods stop after the others, which leave them the time that they ask for, at most a third of the
/// group's. Pods that only the runtime knows ([`Pod::is_runtime_only`]) form an additional last group,
/// because any other pod may depend on them, except for parts of the control plane that their names tell. It shares the available time with the others. If the policy
/// has no groups, no pod is stopped: all are in [`Plan::not_protected`]. Each pod is in the plan once.
///
/// If `available` (counted from the signal) is less than the policy asks for, the plan shrinks. The first
/// to be cut is the time of groups without pods and time that no pod of its group asks for; then the
/// endpoint drain; then the longest groups are cut to a common length until the rest fits, so that no
/// group falls below an equal share. Left-over seconds go to the last groups. More available time never
/// shortens any group's share.
pub fn plan(pods: &[Pod], policy: &Policy, available: Option<Duration>) -> Plan {
    plan_with(pods, policy, &[], available)
}

/// Like [`plan`], with `work` of plug-ins, whose time is taken from the pods: at most a quarter of it,
/// however long the work may take. Work at the same point runs concurrently and counts once.
pub fn plan_with(
    pods: &[Pod],
    policy: &Policy,
    work: &[ShutdownWork],
    available: Option<Duration>,
) -> Plan {
    plan_on(pods, policy, work, available, &[])
}

/// Like [`plan_with`], for a node that goes down `total` after its notice. A node that is lost anyway has no use
/// for spare time: the pods get all of it except the policy's reserve, even if they ask for less.
pub fn plan_within(pods: &[Pod], policy: &Policy, work: &[ShutdownWork], total: Duration) -> Plan {
    let time = Budget::of_notice(policy, total).pods;
    let mut plan = plan_with(pods, policy, work, Some(time));
    if policy.is_enabled() {
        plan.extend_to(time);
    }
    plan
}

/// Like [`plan_with`], with groups for ordinary pods of `priorities` even if there are no such pods: a run keeps
/// its groups after all pods of one have stopped.
pub(crate) fn plan_on(
    pods: &[Pod],
    policy: &Policy,
    work: &[ShutdownWork],
    available: Option<Duration>,
    priorities: &[i32],
) -> Plan {
    let requested = policy.requested();
    let mut groups = empty_groups(pods, policy, priorities);
    let has_unknown = pods.iter().any(|pod| is_unplaced(&groups, pod)) && !groups.is_empty();
    if has_unknown {
        groups.push(unknown_group(pods, policy));
    }
    let mut not_protected = Vec::new();
    for pod in pods {
        match group_index(&groups, pod).and_then(|index| groups.get_mut(index)) {
            Some(group) => {
                group.pods.push(PlannedPod { pod: pod.clone(), grace: Duration::ZERO });
            }
            None => not_protected.push(pod.clone()),
        }
    }
    if let Groups::ByRole { total, later } = policy.groups() {
        divide::by_role(&mut groups, *total, *later);
    }

    let endpoint_drain = match groups.iter().all(|group| group.pods.is_empty()) {
        true => Duration::ZERO,
        false => policy.endpoint_drain(),
    };
    let deadline = available.map_or(requested, |available| available.min(requested));
    let shortened = (deadline < requested).then_some(Shrink { requested, available: deadline });
    let mut plan = Plan {
        work: work::place(&groups, work, deadline),
        groups,
        not_protected,
        requested,
        endpoint_drain,
        deadline,
        shortened,
        policy: policy.clone(),
    };
    let kept = plan.kept_for_work();
    // No configured period takes unknown pods or work into account.
    let takes_more = has_unknown && matches!(policy.groups(), Groups::ByPriority(_));
    if shortened.is_some() || takes_more || !kept.is_zero() {
        plan.endpoint_drain = divide::shrink(&mut plan.groups, endpoint_drain, deadline - kept);
    }
    for group in &mut plan.groups {
        let kept = group.kept_for_drivers(group.allowed);
        for planned in &mut group.pods {
            let most = planned.part_of(group.allowed, kept);
            planned.grace =
                planned.pod.termination_grace_period().unwrap_or(group.allowed).min(most);
        }
    }
    plan.set_latest_ends();
    plan
}

// === impl Plan ===

impl Plan {
    /// Moves the pods out of their groups.
    pub(crate) fn take_pods(&mut self) -> Vec<Vec<PlannedPod>> {
        self.groups.iter_mut().map(|group| std::mem::take(&mut group.pods)).collect()
    }

    /// The number of pods that the plan stops.
    pub fn pod_count(&self) -> usize {
        self.groups.iter().map(|group| group.pods.len()).sum()
    }

    /// Returns the time that each group's pods are guaranteed, in whole seconds, however long earlier
    /// groups take. The first group with pods may get more than it is allowed, because it can use time
    /// that no other group needs.
    pub fn guaranteed(&self) -> Vec<Duration> {
        let mut begun = self.endpoint_drain;
        let guaranteed = |(index, group): (usize, &Group)| {
            begun += self.kept_at(WorkPlace::Before(index));
            let guaranteed =
                whole_seconds(group.latest_end.saturating_sub(begun)).max(group.allowed);
            if !group.pods.is_empty() {
                begun = group.latest_end;
            }
            guaranteed
        };
        self.groups.iter().enumerate().map(guaranteed).collect()
    }

    /// Returns when the grace periods of each group are over, counted from the signal: at the group's latest
    /// end, or sooner if no pod asks for that much.
    pub fn gone_within(&self) -> Vec<Duration> {
        let mut begun = self.endpoint_drain;
        let gone = |(index, group): (usize, &Group)| {
            begun += self.kept_at(WorkPlace::Before(index));
            let end = begun.saturating_add(group.asked_for()).min(group.latest_end);
            if !group.pods.is_empty() {
                begun = end;
            }
            end
        };
        self.groups.iter().enumerate().map(gone).collect()
    }

    /// Moves the deadline to `deadline` if that is later. Every group may use the added time. For runs
    /// that may take longer than the policy asks for: drains and notices.
    pub fn extend_to(&mut self, deadline: Duration) {
        self.deadline = self.deadline.max(deadline);
        self.set_latest_ends();
    }

    /// Shifts the plan for a run that begins this long after the signal.
    pub(crate) fn begun_after(mut self, delay: Duration) -> Self {
        self.deadline += delay;
        self.set_latest_ends();
        self
    }

    /// Whether this pod may stay on the node, and start again, when the node reboots.
    pub fn may_stay(&self, pod: &Pod) -> bool {
        may_stay(pod, self.policy.in_place())
    }

    /// Whether this pod may keep running through a soft reboot, if its runtime supports that.
    pub fn may_survive(&self, pod: &Pod) -> bool {
        may_survive(pod, self.policy.in_place())
    }

    /// Makes a plan by the same policy for pods that were not known when this one was made. It begins at
    /// `now`, counted from the signal, and has the same deadline.
    pub(crate) fn replan(&self, pods: &[Pod], now: Duration) -> Self {
        let left = self.deadline.saturating_sub(now);
        let work: Vec<_> = self.work.iter().map(|planned| planned.work.clone()).collect();
        let mut plan = plan_with(pods, &self.policy, &work, Some(left)).begun_after(now);
        plan.extend_to(self.deadline);
        plan
    }

    /// Returns the group that `pod` belongs to; none in an empty plan. Creates the group of unknown pods
    /// for the first of them.
    pub(crate) fn group_for(&mut self, pod: &Pod) -> Option<usize> {
        self.ensure_unknown(is_unplaced(&self.groups, pod));
        group_index(&self.groups, pod)
    }

    /// Adds a group of unknown pods if the plan `needs` one and has none. It gets the time that the others
    /// leave.
    pub(crate) fn ensure_unknown(&mut self, needs: bool) {
        let has = self.groups.last().is_none_or(Group::is_unknown);
        if needs && !has {
            let latest_end = self.deadline.saturating_sub(self.kept_after_pods());
            self.groups.push(Group { latest_end, ..unknown_group(&[], &self.policy) });
        }
    }

    fn set_latest_ends(&mut self) {
        let last = self.kept_at(WorkPlace::Before(self.groups.len()));
        let mut end = self.deadline.saturating_sub(self.kept_after_pods() + last);
        for index in (0..self.groups.len()).rev() {
            let kept = self.kept_at(WorkPlace::Before(index));
            let group = &mut self.groups[index];
            group.latest_end = end;
            if !group.pods.is_empty() {
                end = end.saturating_sub(group.allowed);
            }
            end = end.saturating_sub(kept);
        }
    }
}

// === impl Group ===

impl Group {
    /// The group's name for people, e.g. `ordinary pods`; none for a group that is defined only by priority.
    pub fn name(&self) -> Option<Cow<'static, str>> {
        let role = self.role?;
        Some(match role {
            Role::Ordinary if self.priority != 0 => {
                format!("{role}, priority {}", self.priority).into()
            }
            role => role.name().into(),
        })
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.role == Some(Role::Unknown)
    }

    /// Returns the time that its pods ask for: the longest grace period, plus that of drivers which wait for
    /// the others.
    fn asked_for(&self) -> Duration {
        let wait = !self.kept_for_drivers(self.allowed).is_zero();
        let longest = |drivers| {
            let pods = self.pods.iter().map(|planned| &planned.pod);
            let pods = pods.filter(|pod| drivers == (wait && ends_with_drivers(pod)));
            pods.map(|pod| {
                pod.termination_grace_period().unwrap_or(self.allowed).max(Grace::SHORTEST)
            })
            .max()
        };
        longest(false).unwrap_or_default().saturating_add(longest(true).unwrap_or_default())
    }

    /// Returns the part of `time` that is kept for the group's drivers.
    fn kept_for_drivers(&self, time: Duration) -> Duration {
        kept_for_drivers(self.pods.iter().map(|planned| &planned.pod), time)
    }
}

// === impl PlannedPod ===

impl PlannedPod {
    /// Returns the part of its group's `time` that the pod may use when `kept` of it is for drivers.
    fn part_of(&self, time: Duration, kept: Duration) -> Duration {
        match ends_with_drivers(&self.pod) {
            _ if kept.is_zero() => time,
            true => kept,
            false => time - kept,
        }
    }
}

/// Whether the pod stops together with its group's drivers, if there are any. Mirror pods do: a kubelet cannot
/// stop them, so it is stopped itself before the first of them, and drivers need it until then.
pub(crate) fn ends_with_drivers(pod: &Pod) -> bool {
    is_driver(pod) || pod.is_mirror()
}

/// Returns the time that the drivers among `pods`, and those that stop with them, ask for: at most a third of `time`,
/// in whole seconds. Zero if there are no drivers, or no other pods that they would have to wait for.
pub(crate) fn kept_for_drivers<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    time: Duration,
) -> Duration {
    if !pods.clone().any(is_driver) || pods.clone().all(ends_with_drivers) {
        return Duration::ZERO;
    }
    let wishes = pods
        .filter(|pod| ends_with_drivers(pod))
        .map(|pod| pod.termination_grace_period().unwrap_or(time));
    whole_seconds(wishes.max().unwrap_or_default().max(Grace::SHORTEST).min(time / 3))
}

/// Creates the group of unknown pods, without its pods.
fn unknown_group(pods: &[Pod], policy: &Policy) -> Group {
    let unknown = pods.iter().filter(|pod| pod.is_runtime_only());
    let longest = unknown.map(|pod| pod.termination_grace_period().unwrap_or(Grace::DEFAULT)).max();
    let period = whole_seconds(longest.unwrap_or(Grace::DEFAULT)).min(policy.periods());
    Group {
        priority: Role::Unknown.priority(),
        role: Some(Role::Unknown),
        configured: period,
        allowed: period,
        latest_end: Duration::ZERO,
        pods: Vec::new(),
    }
}

/// Returns the groups that a plan for `pods` has, without the pods and in ascending order. There is one for each of
/// `priorities` even if it has no pods.
pub fn empty_groups(pods: &[Pod], policy: &Policy, priorities: &[i32]) -> Vec<Group> {
    let group = |priority, role, period| Group {
        priority,
        role,
        configured: period,
        allowed: period,
        latest_end: Duration::ZERO,
        pods: Vec::new(),
    };
    match policy.groups() {
        Groups::ByPriority(groups) => {
            groups.iter().map(|of| group(of.priority, None, of.period)).collect()
        }
        Groups::ByRole { .. } if !policy.is_enabled() => Vec::new(),
        Groups::ByRole { .. } => {
            let priorities = ordinary_priorities(pods, priorities).into_iter();
            let ordinary = priorities.map(|priority| (priority, Role::Ordinary));
            let others = Role::ALL.iter().filter(|role| **role != Role::Ordinary);
            ordinary
                .chain(others.map(|role| (role.priority(), *role)))
                .map(|(priority, role)| group(priority, Some(role), Duration::ZERO))
                .collect()
        }
    }
}

/// Returns the lowest priority of each group of ordinary pods, ascending; at least one.
fn ordinary_priorities(pods: &[Pod], priorities: &[i32]) -> Vec<i32> {
    let ordinary = pods.iter().filter(|pod| Role::of(pod) == Role::Ordinary);
    let mut all: Vec<i32> = ordinary.map(Pod::priority_or_zero).collect();
    all.extend(priorities);
    if all.is_empty() {
        all.push(Role::Ordinary.priority());
    }
    all.sort_unstable();
    all.dedup();
    all.split_off(all.len().saturating_sub(ORDINARY_GROUPS))
}

/// Whether the pod belongs to the additional last group: only the runtime knows it, and by roles neither its namespace
/// nor its name says what it is.
fn is_unplaced(groups: &[Group], pod: &Pod) -> bool {
    let is_by_role = groups.first().is_some_and(|first| first.role.is_some());
    pod.is_runtime_only() && (!is_by_role || Role::of(pod) == Role::Unknown)
}

/// Returns the index of the pod's group. `groups` must be in ascending order, as those of [`empty_groups`] are.
pub fn group_index(groups: &[Group], pod: &Pod) -> Option<usize> {
    let is_by_role = groups.first()?.role.is_some();
    if is_unplaced(groups, pod) {
        return groups.iter().position(Group::is_unknown);
    }
    if is_by_role {
        let role = Some(Role::of(pod));
        if role == Some(Role::Ordinary) {
            let ordinary = groups.partition_point(|group| group.role == role);
            return Some(priority_index(&groups[..ordinary], pod.priority_or_zero()));
        }
        return groups.iter().position(|group| group.role == role);
    }
    let by_priority = priority_index(groups, pod.priority_or_zero());
    let has_time = |group: &Group| !group.is_unknown() && !group.configured.is_zero();
    let last = groups.iter().rposition(has_time).filter(|_| is_driver(pod));
    Some(last.map_or(by_priority, |last| last.max(by_priority)))
}

fn priority_index(groups: &[Group], priority: i32) -> usize {
    let not_above =
        groups.partition_point(|group| !group.is_unknown() && group.priority <= priority);
    not_above.saturating_sub(1)
}
