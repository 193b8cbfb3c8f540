use std::time::Duration;

use proptest::prelude::*;
use winddown_shared::Pod;

use super::{Plan, PlanWarning, Shrink, plan, plan_within, share};
use crate::tests::{period, pod, secs, with_role};
use crate::{CRITICAL_PRIORITY, Policy, Role};

mod drain;
mod roles;
mod unknown;
mod work;

fn two_fields(total: u64, critical: u64) -> Policy {
    Policy::from_periods(secs(total), secs(critical)).unwrap()
}

fn by_priority(groups: &[(i32, i64)]) -> Policy {
    Policy::by_priority(groups.iter().map(|&(priority, seconds)| period(priority, seconds)))
        .unwrap()
}

fn names(plan: &Plan) -> Vec<Vec<&str>> {
    plan.groups.iter().map(|g| g.pods.iter().map(|p| &**p.pod.name()).collect()).collect()
}

fn allowed(plan: &Plan) -> Vec<u64> {
    plan.groups.iter().map(|group| group.allowed.as_secs()).collect()
}

fn ends(plan: &Plan) -> Vec<u64> {
    plan.groups.iter().map(|group| group.latest_end.as_secs()).collect()
}

fn graces(plan: &Plan) -> Vec<u64> {
    plan.groups.iter().flat_map(|g| &g.pods).map(|p| p.grace.as_secs()).collect()
}

// Test_groupByPriority of the reference.

#[test]
fn with_the_migrated_config_only_system_critical_pods_are_in_the_second_group() {
    let pods = [
        pod("p0", Some(0), None),
        pod("p1", Some(1_000_000_000), None),
        pod("p2", Some(CRITICAL_PRIORITY), None),
    ];
    assert_eq!(names(&plan(&pods, &two_fields(300, 120), None)), [vec!["p0", "p1"], vec!["p2"]]);
}

#[test]
fn a_pod_belongs_to_the_highest_group_not_above_it_or_to_the_lowest() {
    let pods: Vec<Pod> = (0..6).map(|p| pod(&format!("p{p}"), Some(p), None)).collect();
    let policy = by_priority(&[(4, 1), (3, 1), (2, 1), (1, 1)]);
    assert_eq!(
        names(&plan(&pods, &policy, None)),
        [vec!["p0", "p1"], vec!["p2"], vec!["p3"], vec!["p4", "p5"]]
    );
}

#[test]
fn a_pod_without_priority_counts_as_zero() {
    let policy = by_priority(&[(-5, 1), (0, 1), (5, 1)]);
    assert_eq!(
        names(&plan(&[pod("p", None, None)], &policy, None)),
        [vec![], vec!["p"], Vec::<&str>::new()]
    );
}

#[test]
fn a_pod_gets_its_own_grace_but_not_more_than_its_group() {
    let pods = [
        pod("none", None, None),
        pod("zero", None, Some(0)),
        pod("short", None, Some(2)),
        pod("equal", None, Some(20)),
        pod("long", None, Some(1000)),
    ];
    assert_eq!(graces(&plan(&pods, &two_fields(30, 10), None)), [20, 0, 2, 20, 20]);
}

#[test]
fn a_disabled_policy_plans_nothing() {
    let plan = plan(&[pod("p", None, None)], &Policy::disabled(), Some(secs(5)));
    assert!(plan.groups.is_empty());
    assert_eq!(plan.deadline, Duration::ZERO);
    assert_eq!(plan.shortened, None);
}

// Latest ends: where spare time goes.

#[test]
fn a_group_may_use_what_empty_groups_after_it_do_not_need() {
    let policy = by_priority(&[(0, 20), (10, 5), (20, 10)]);
    let pods = [pod("app", None, Some(60)), pod("last", Some(20), Some(60))];
    let plan = plan(&pods, &policy, None);
    assert_eq!(allowed(&plan), [20, 5, 10]);
    assert_eq!(ends(&plan), [25, 25, 35]);
    let PlanWarning::GraceCut { gets, at_most, .. } = &plan.warnings()[1] else { panic!() };
    assert_eq!((*gets, *at_most), (secs(10), secs(35)));
}

#[test]
fn a_longer_deadline_moves_every_latest_end() {
    let pods = [pod("app", None, None), pod("last", Some(CRITICAL_PRIORITY), None)];
    let mut plan = plan(&pods, &two_fields(30, 10), None);
    plan.extend_to(secs(300));
    assert_eq!(ends(&plan), [290, 300]);
    plan.extend_to(secs(10));
    assert_eq!(ends(&plan), [290, 300]);
}

#[test]
fn pods_are_gone_when_the_longest_grace_before_them_is_over() {
    let gone =
        |plan: &Plan| -> Vec<u64> { plan.gone_within().iter().map(Duration::as_secs).collect() };
    let policy = two_fields(30, 10).with_endpoint_drain(secs(3));
    let mut pods = vec![pod("app", None, Some(2)), pod("last", Some(CRITICAL_PRIORITY), Some(0))];
    assert_eq!(gone(&plan(&pods, &policy, None)), [5, 6], "no grace is shorter than a second");
    pods.push(pod("long", None, Some(60)));
    pods.push(pod("unset", Some(CRITICAL_PRIORITY), None));
    let mut planned = plan(&pods, &policy, None);
    assert_eq!(gone(&planned), [23, 33]);
    planned.extend_to(secs(300));
    assert_eq!(gone(&planned), [63, 73], "with more time than is configured");
    let driver = with_role(&pod("driver", None, Some(4)), "driver");
    let pods = [driver, pod("dns", Some(CRITICAL_PRIORITY), Some(2))];
    assert_eq!(gone(&plan(&pods, &policy, None)), [3, 9], "the driver ends after the others");
}

#[test]
fn a_grace_is_a_second_at_least_also_in_what_is_warned_of() {
    let warned = plan_within(&[pod("app", None, Some(60))], &two_fields(30, 10), &[], secs(1));
    let texts: Vec<String> = warned.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(texts[1..], ["pod default/app asks for 1m and gets 1s"]);
}

#[test]
fn a_node_that_is_lost_gives_its_pods_all_the_time_but_none_where_shutdowns_terminate_no_pod() {
    let pods = [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), Some(60))];
    let deadline = |policy| plan_within(&pods, policy, &[], secs(100)).deadline;
    let policy = two_fields(30, 10);
    assert_eq!(deadline(&policy), secs(100) - policy.reserve().min(secs(10)));
    assert_eq!(deadline(&Policy::disabled()), secs(0));
}

#[test]
fn a_run_that_begins_late_has_its_ends_later_by_as_much() {
    let pods = [pod("app", None, None), pod("last", Some(CRITICAL_PRIORITY), None)];
    let plan = plan(&pods, &two_fields(30, 10), None).begun_after(secs(7));
    assert_eq!((ends(&plan), plan.deadline), (vec![27, 37], secs(37)));
}

// Shrinking.

#[test]
fn enough_time_shrinks_nothing() {
    let pods = [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), None)];
    let plan = plan(&pods, &two_fields(30, 10), Some(secs(30)));
    assert_eq!((plan.shortened, allowed(&plan)), (None, vec![20, 10]));
}

#[test]
fn the_time_of_groups_without_pods_goes_first() {
    let plan = plan(&[pod("app", None, Some(60))], &two_fields(30, 10), Some(secs(20)));
    assert_eq!(plan.shortened, Some(Shrink { requested: secs(30), available: secs(20) }));
    assert_eq!(allowed(&plan), [20, 0]);
}

#[test]
fn time_that_no_pod_asks_for_goes_second() {
    let pods = [pod("app", None, Some(5)), pod("last", Some(CRITICAL_PRIORITY), Some(60))];
    let plan = plan(&pods, &two_fields(30, 10), Some(secs(15)));
    assert_eq!(allowed(&plan), [5, 10]);
    assert_eq!(graces(&plan), [5, 10]);
}

#[test]
fn then_the_longest_group_is_cut_and_the_critical_one_keeps_an_equal_share() {
    let pods = [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), Some(60))];
    let policy = two_fields(30, 10);
    let at = |seconds| allowed(&plan(&pods, &policy, Some(secs(seconds))));
    assert_eq!(at(25), [15, 10]);
    assert_eq!(at(19), [9, 10]);
    assert_eq!(at(5), [2, 3]);
    assert_eq!(at(1), [0, 1]);
    assert_eq!(at(0), [0, 0]);
}

#[test]
fn a_fraction_of_a_second_is_kept_for_the_deadline() {
    let pods = [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), Some(60))];
    let plan = plan(&pods, &two_fields(30, 10), Some(Duration::from_millis(4500)));
    assert_eq!(allowed(&plan), [2, 2]);
    assert_eq!(plan.deadline, Duration::from_millis(4500));
    assert_eq!(plan.groups[0].latest_end, Duration::from_millis(2500));
}

#[test]
fn the_warnings_read_well() {
    let pods = [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), Some(60))];
    let plan = plan(&pods, &two_fields(30, 10), Some(secs(10)));
    let texts: Vec<String> = plan.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "the groups ask for 30s but only 10s is available: the plan is shortened",
            "pod default/app asks for 1m and gets 5s",
            "pod default/last asks for 1m and is guaranteed 5s (up to 10s if earlier groups \
             finish sooner)",
        ]
    );
}

#[test]
fn pods_that_ask_for_the_default_are_counted_and_the_others_named() {
    let mut pods: Vec<Pod> = (0..12).map(|i| pod(&format!("web-{i}"), None, Some(30))).collect();
    pods.push(pod("database", None, Some(90)));
    pods.push(pod("last", Some(CRITICAL_PRIORITY), Some(30)));
    let texts = |pods: &[Pod]| -> Vec<String> {
        plan(pods, &two_fields(30, 10), None).warnings().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        texts(&pods),
        [
            "pod default/database asks for 1m30s and gets 20s",
            "13 pods ask for 30s, the default, and are guaranteed 10s to 20s",
        ]
    );
    assert!(texts(&pods[..1]).is_empty(), "nobody else needs the time");
    let two = [pod("web", None, Some(30)), pod("last", Some(CRITICAL_PRIORITY), Some(1))];
    assert_eq!(texts(&two), ["pod default/web asks for 30s and gets 20s"]);
    for index in 0..5 {
        pods.push(pod(&format!("big-{index}"), None, Some(60)));
    }
    assert_eq!(texts(&pods)[0], "6 pods ask for 1m to 1m30s and are guaranteed 20s");
}

#[test]
fn a_pod_that_gets_just_what_it_asks_for_is_not_told_of() {
    let with = |graces: [i64; 2]| {
        let last = pod("last", Some(CRITICAL_PRIORITY), Some(graces[1]));
        plan(&[pod("app", None, Some(graces[0])), last], &two_fields(30, 10), None).warnings()
    };
    assert_eq!(with([20, 10]), []);
    assert_eq!(with([21, 11]).len(), 2);
}

#[test]
fn a_hundred_times_the_pods_take_about_a_hundred_times_as_long() {
    let policy = by_priority(&(0..20).map(|p| (p, 10)).collect::<Vec<_>>());
    let pods: Vec<Pod> =
        (0..100_000).map(|i| pod(&format!("p{i}"), Some(i % 25), Some(30))).collect();
    // Two orders of magnitude above the time of an unoptimised build: this fails if anything is quadratic.
    let begun = tokio::time::Instant::now();
    let plan = plan(&pods, &policy, Some(secs(100)));
    assert_eq!(plan.pod_count(), pods.len());
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let priority = prop_oneof![-3..6i32, Just(CRITICAL_PRIORITY), any::<i32>()];
    let groups = proptest::collection::btree_map(priority, 0..60i64, 1..6);
    (groups, prop_oneof![Just(0), 0..30u64]).prop_map(|(groups, drain)| {
        by_priority(&groups.into_iter().collect::<Vec<_>>()).with_endpoint_drain(secs(drain))
    })
}

/// Checks that every pod's time lies within its group's, and every group's within the plan's.
fn check_times(plan: &Plan) {
    let mut end = plan.endpoint_drain;
    for group in plan.groups.iter().filter(|group| !group.pods.is_empty()) {
        end += group.allowed;
        assert!(group.allowed <= group.configured);
        // Even if a group ends as late as it may, later groups have the time that they are allowed.
        assert!(end <= group.latest_end && group.latest_end <= plan.deadline, "{plan:?}");
        assert!(group.pods.iter().all(|planned| planned.grace <= group.allowed));
    }
    assert!(plan.groups.windows(2).all(|pair| pair[0].latest_end <= pair[1].latest_end));
    assert!(plan.endpoint_drain <= plan.policy.endpoint_drain());
}

/// Checks that, of two plans for the same pods, the one with more time shortens nothing.
fn check_that_no_pod_lost(tight: &Plan, loose: &Plan) {
    assert!(tight.endpoint_drain <= loose.endpoint_drain);
    for (tight, loose) in tight.groups.iter().zip(&loose.groups) {
        if !tight.pods.is_empty() {
            assert!(tight.allowed <= loose.allowed);
            assert!(tight.latest_end <= loose.latest_end);
        }
        for (tight, loose) in tight.pods.iter().zip(&loose.pods) {
            assert!(tight.grace <= loose.grace);
        }
    }
}

fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
    let priority =
        proptest::option::of(prop_oneof![-3..6i32, Just(CRITICAL_PRIORITY), any::<i32>()]);
    let grace = proptest::option::of(0..120i64);
    proptest::collection::vec((priority, grace), 0..12).prop_map(|pods| {
        let named = |(i, (priority, grace))| pod(&format!("p{i}"), priority, grace);
        pods.into_iter().enumerate().map(named).collect()
    })
}

proptest! {
    #[test]
    fn every_pod_is_in_exactly_one_group_and_groups_ascend(pods in any_pods(), policy in any_policy()) {
        let plan = plan(&pods, &policy, None);
        let mut planned: Vec<&str> =
            plan.groups.iter().flat_map(|g| &g.pods).map(|p| &**p.pod.name()).collect();
        planned.sort_unstable();
        let mut expected: Vec<&str> = pods.iter().map(|p| &**p.name()).collect();
        expected.sort_unstable();
        prop_assert_eq!(planned, expected);
        prop_assert!(plan.groups.windows(2).all(|pair| pair[0].priority < pair[1].priority));
        for (index, group) in plan.groups.iter().enumerate() {
            let next = plan.groups.get(index + 1).map_or(i64::MAX, |next| next.priority.into());
            for planned in &group.pods {
                let priority = i64::from(planned.pod.spec.as_ref().unwrap().priority.unwrap_or(0));
                prop_assert!(priority < next);
                prop_assert!(index == 0 || priority >= group.priority.into());
            }
        }
    }

    #[test]
    fn no_plan_exceeds_its_deadline(
        pods in any_pods(), policy in any_policy(), available in 0..400u64,
    ) {
        let available = secs(available);
        let plan = plan(&pods, &policy, Some(available));
        prop_assert!(plan.deadline <= available && plan.deadline <= plan.requested);
        check_times(&plan);
    }

    #[test]
    fn more_time_never_harms_a_pod(
        pods in any_pods(), policy in any_policy(), less in 0..400u64, more in 0..50u64,
    ) {
        let tight = plan(&pods, &policy, Some(secs(less)));
        let loose = plan(&pods, &policy, Some(secs(less + more)));
        check_that_no_pod_lost(&tight, &loose);
    }

    #[test]
    fn one_more_second_goes_to_exactly_one_share(
        wants in proptest::collection::vec(0..50u64, 0..8), total in 0..300u64,
    ) {
        let before = share::level(&wants, total);
        let after = share::level(&wants, total + 1);
        prop_assert_eq!(before.iter().sum::<u64>(), total.min(wants.iter().sum()));
        let raised: u64 = before.iter().zip(&after).map(|(b, a)| a.checked_sub(*b).unwrap()).sum();
        prop_assert_eq!(raised, u64::from(total < wants.iter().sum()));
    }
}

#[test]
fn a_driver_is_in_the_last_group_that_has_time_and_the_others_leave_it_a_part_of_it() {
    let driver = with_role(&pod("driver", None, Some(30)), "driver");
    let pods = [driver, pod("app", None, Some(60)), pod("dns", Some(CRITICAL_PRIORITY), Some(60))];
    let graces = |policy: &Policy| {
        let plan = plan(&pods, policy, None);
        let pods = plan.groups.iter().map(|group| &group.pods);
        pods.map(|pods| {
            pods.iter().map(|one| (one.pod.name().to_string(), one.grace.as_secs())).collect()
        })
        .collect::<Vec<Vec<_>>>()
    };
    let named = |name: &str, grace| (name.to_owned(), grace);
    let with_both = Policy::from_periods(secs(90), secs(30)).unwrap();
    let wanted = [vec![named("app", 60)], vec![named("driver", 10), named("dns", 20)]];
    assert_eq!(graces(&with_both), wanted);
    let all_for_one = Policy::from_periods(secs(30), secs(0)).unwrap();
    let wanted = [vec![named("driver", 10), named("app", 20)], vec![named("dns", 0)]];
    assert_eq!(graces(&all_for_one), wanted);
}

/// A kubelet's mirror pods stop together with the drivers: they need the time that is kept as much.
#[test]
fn the_time_kept_for_drivers_is_that_of_all_pods_that_stop_with_them() {
    let driver = with_role(&pod("driver", None, Some(2)), "driver");
    let annotation = ("kubernetes.io/config.mirror".to_owned(), "hash".to_owned());
    let mut mirror = pod("mirror", Some(CRITICAL_PRIORITY), Some(30)).object().clone();
    mirror.metadata.annotations = Some([annotation].into());
    let pods = [driver, Pod::new(mirror).unwrap(), pod("app", Some(CRITICAL_PRIORITY), Some(60))];
    let graces = |critical| {
        let policy = Policy::from_periods(secs(120), secs(critical)).unwrap();
        let groups = plan(&pods, &policy, None).groups;
        groups[1].pods.iter().map(|one| one.grace.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(graces(120), [2, 30, 60]);
    assert_eq!(graces(60), [2, 20, 40], "at most a third is kept");
}

proptest! {
    /// Also by a policy that is off, and by periods of zero: what a plan does not protect, it names.
    #[test]
    fn each_pod_is_once_in_a_plan_whatever_the_policy(
        fields in (0_u64..3, 0_u64..3, any::<bool>(), prop::collection::vec((-2_i32..3, 0_i64..3), 0..4)),
        pods in prop::collection::vec((prop::option::of(-3_i32..3), any::<bool>()), 0..8),
    ) {
        let (total, critical, by_role, by_priority) = fields;
        let mut config = serde_json::json!({
            "shutdownGracePeriod": format!("{total}s"),
            "shutdownGracePeriodCriticalPods": format!("{}s", critical.min(total)),
            "shutdownOrder": if by_role { "role" } else { "priority" },
        });
        if !by_priority.is_empty() {
            let group = |(priority, seconds): (i32, i64)| {
                serde_json::json!({"priority": priority, "shutdownGracePeriodSeconds": seconds})
            };
            let each: std::collections::BTreeMap<i32, i64> = by_priority.into_iter().collect();
            let groups: Vec<_> = each.into_iter().map(group).collect();
            config = serde_json::json!({"shutdownGracePeriodByPodPriority": groups});
        }
        let named = |at: usize| format!("p{at}");
        let given: Vec<_> = pods.iter().enumerate().map(|(at, (priority, system))| {
            let namespace = if *system { "kube-system" } else { "default" };
            let metadata = serde_json::json!({"name": named(at), "namespace": namespace});
            serde_json::json!({"metadata": metadata, "spec": {"priority": priority, "containers": []}})
        }).collect();
        let line = serde_json::json!({"config": config, "pods": given}).to_string();
        let answer = serde_json::to_value(crate::plan_case(&line).unwrap()).unwrap();
        let groups = answer["groups"].as_array().unwrap();
        let lists = groups.iter().map(|group| &group["pods"]).chain([&answer["notProtected"]]);
        let mut found: Vec<String> = lists
            .flat_map(|list| list.as_array().into_iter().flatten())
            .map(|pod| pod["name"].as_str().unwrap().to_owned())
            .collect();
        found.sort();
        prop_assert_eq!(found, (0..pods.len()).map(named).collect::<Vec<_>>());
    }
}
