//! The order in which pods start after a boot: the reverse of the order in which they stop. Pure.

use std::cmp::Reverse;
use std::time::Duration;

use winddown_shared::Pod;
use winddown_shared::status::is_terminal;
use winddown_shutdown::{Group, Policy, empty_groups, group_index, is_driver};

/// The order in which pods start.
#[derive(Clone, Debug)]
pub struct StartPlan {
    /// The groups that have pods, in the order in which they start.
    pub groups: Vec<StartGroup>,
    /// The groups that a shutdown would have, without their pods.
    of_shutdown: Vec<Group>,
}

/// Pods that start together.
#[derive(Clone, Debug)]
pub struct StartGroup {
    /// The group's place in the order.
    pub rank: StartRank,
    /// The group's name for people, e.g. `system pods`.
    pub name: String,
    /// The pods, in the order of the snapshot.
    pub pods: Vec<Pod>,
}

/// A place in the start order; lower ranks start earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartRank {
    /// The [`Group::priority`] in a shutdown. The highest starts first.
    pub priority: i32,
    /// Whether these are the drivers of that group. They start before its other pods, which need them.
    pub drivers: bool,
}

/// Plans the start of `pods`: the groups that a shutdown by `policy` would have, in reverse order, and drivers first
/// in each. If the policy is disabled, the groups are roles.
pub fn start_plan(pods: &[Pod], policy: &Policy) -> StartPlan {
    let roles;
    let policy = match Policy::by_role(Duration::from_secs(1), Duration::ZERO) {
        Ok(by_role) if !policy.is_enabled() => {
            roles = by_role;
            &roles
        }
        _ => policy,
    };
    let mut plan = StartPlan { groups: Vec::new(), of_shutdown: empty_groups(pods, policy, &[]) };
    // A pod that terminated before the boot does not start.
    let starting = pods.iter().filter(|pod| !pod.status.as_ref().is_some_and(is_terminal));
    let mut ranked: Vec<(StartRank, &Pod)> = starting.map(|pod| (plan.rank(pod), pod)).collect();
    // A stable sort, so that pods keep their order within a group.
    ranked.sort_by_key(|(rank, _)| *rank);
    for (rank, pod) in ranked {
        match plan.groups.last_mut().filter(|group| group.rank == rank) {
            Some(group) => group.pods.push(pod.clone()),
            None => {
                let name = plan.name(rank);
                plan.groups.push(StartGroup { rank, name, pods: vec![pod.clone()] });
            }
        }
    }
    plan
}

// === impl StartPlan ===

impl StartPlan {
    /// Returns the rank of `pod`, which need not be one of the pods that the plan was made for.
    pub fn rank(&self, pod: &Pod) -> StartRank {
        let group = group_index(&self.of_shutdown, pod).and_then(|at| self.of_shutdown.get(at));
        StartRank {
            priority: group.map_or(i32::MAX, |group| group.priority),
            drivers: is_driver(pod),
        }
    }

    fn name(&self, rank: StartRank) -> String {
        let group = self.of_shutdown.iter().find(|group| group.priority == rank.priority);
        let name = group.and_then(Group::name).map_or_else(
            || format!("priority {} and above", rank.priority),
            std::borrow::Cow::into_owned,
        );
        match rank.drivers {
            true => format!("drivers, {name}"),
            false => name,
        }
    }
}

// === impl StartRank ===

impl Ord for StartRank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |rank: &Self| (Reverse(rank.priority), !rank.drivers);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for StartRank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use winddown_shared::testing::pod_with;
    use winddown_shutdown::{ROLE_LABEL, plan};

    use super::*;

    fn pod(name: &str, priority: i32) -> Pod {
        pod_with(name, name, |pod| pod.spec.get_or_insert_default().priority = Some(priority))
    }

    fn driver(name: &str, priority: i32) -> Pod {
        pod_with(name, name, |pod| {
            pod.metadata.labels = Some([(ROLE_LABEL.to_owned(), "driver".to_owned())].into());
            pod.spec.get_or_insert_default().priority = Some(priority);
        })
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn shown(plan: &StartPlan) -> Vec<(String, Vec<String>)> {
        let names = |group: &StartGroup| group.pods.iter().map(|p| p.name().to_string()).collect();
        plan.groups.iter().map(|group| (group.name.clone(), names(group))).collect()
    }

    fn pods() -> Vec<Pod> {
        vec![
            pod("web", 0),
            pod("batch", -5),
            pod("dns", 2_000_000_000),
            driver("csi", 2_000_000_000),
            pod("proxy", 2_000_001_000),
            pod("api", 0),
        ]
    }

    #[test]
    fn pods_start_in_the_reverse_of_the_order_in_which_they_end_drivers_before_those_who_need_them()
    {
        let by_role = Policy::by_role(secs(30), secs(10)).unwrap();
        let all = pods();
        let expected = [
            ("drivers, pods of the node itself", vec!["csi"]),
            ("pods of the node itself", vec!["proxy"]),
            ("system pods", vec!["dns"]),
            ("ordinary pods", vec!["web", "api"]),
            ("ordinary pods, priority -5", vec!["batch"]),
        ]
        .map(|(name, pods)| (name.to_owned(), pods.into_iter().map(str::to_owned).collect()));
        assert_eq!(shown(&start_plan(&all, &by_role)), expected);
        // The order is also defined if shutdowns stop no pods.
        assert_eq!(shown(&start_plan(&all, &Policy::disabled())), expected);
        let ends: Vec<_> =
            plan(&all, &by_role, None).groups.iter().rev().map(|g| g.priority).collect();
        let mut starts: Vec<_> =
            start_plan(&all, &by_role).groups.iter().map(|g| g.rank.priority).collect();
        starts.dedup();
        let ends: Vec<_> = ends.into_iter().filter(|p| starts.contains(p)).collect();
        assert_eq!(starts, ends);
    }

    #[test]
    fn configured_groups_start_in_reverse_as_well_and_a_later_pod_finds_its_place() {
        let by_priority = Policy::from_periods(secs(30), secs(10)).unwrap();
        let plan = start_plan(&pods(), &by_priority);
        let names: Vec<_> = shown(&plan).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "drivers, priority 2000000000 and above",
                "priority 2000000000 and above",
                "priority 0 and above"
            ]
        );
        assert_eq!(plan.rank(&pod("late", 7)), plan.groups[2].rank);
        assert!(plan.rank(&driver("late", 7)) < plan.rank(&pod("dns", 2_000_000_000)));
        assert!(start_plan(&[], &by_priority).groups.is_empty());
    }

    #[test]
    fn a_pod_that_terminated_before_the_boot_is_no_pod_of_a_group() {
        let terminated = pod_with("job", "job", |pod| {
            pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        });
        let by_role = Policy::by_role(secs(30), secs(10)).unwrap();
        assert!(start_plan(&[terminated], &by_role).groups.is_empty());
    }
}
