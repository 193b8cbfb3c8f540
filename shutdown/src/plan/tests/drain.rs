//! The time between "not ready" and the first SIGTERM.

use super::*;

fn both() -> [Pod; 2] {
    [pod("app", None, Some(60)), pod("last", Some(CRITICAL_PRIORITY), Some(60))]
}

/// Returns the drain and the groups' times when 15 s and 30 s are asked for, and `available` is the total time.
fn with(pods: &[Pod], available: u64) -> (u64, Vec<u64>) {
    let policy = two_fields(30, 10).with_endpoint_drain(secs(15));
    let plan = plan(pods, &policy, Some(secs(available)));
    (plan.endpoint_drain.as_secs(), allowed(&plan))
}

#[test]
fn the_groups_begin_after_the_drain_and_keep_their_time() {
    let policy = two_fields(30, 10).with_endpoint_drain(secs(15));
    let plan = plan(&both(), &policy, None);
    assert_eq!((plan.requested, plan.deadline), (secs(45), secs(45)));
    assert_eq!(plan.endpoint_drain, secs(15));
    assert_eq!((allowed(&plan), ends(&plan)), (vec![20, 10], vec![35, 45]));
    assert_eq!(plan.shortened, None);
}

#[test]
fn when_time_is_short_the_drain_is_given_up_before_any_grace() {
    assert_eq!(with(&both(), 45), (15, vec![20, 10]));
    assert_eq!(with(&both(), 40), (10, vec![20, 10]));
    assert_eq!(with(&both(), 30), (0, vec![20, 10]));
    assert_eq!(with(&both(), 20), (0, vec![10, 10]));
}

#[test]
fn time_that_no_pod_asks_for_goes_before_the_drain() {
    let pods = [pod("app", None, Some(5)), pod("last", Some(CRITICAL_PRIORITY), Some(2))];
    assert_eq!(with(&pods, 45), (15, vec![20, 10]));
    assert_eq!(with(&pods, 25), (15, vec![6, 4]));
    assert_eq!(with(&pods, 22), (15, vec![5, 2]));
    assert_eq!(with(&pods, 10), (3, vec![5, 2]));
}

#[test]
fn without_pods_there_is_nothing_to_wait_for() {
    assert_eq!(with(&[], 45), (0, vec![20, 10]));
    assert_eq!(with(&[], 5).0, 0);
}

#[test]
fn a_drain_that_is_cut_is_told_of() {
    let policy = two_fields(30, 10).with_endpoint_drain(secs(15));
    let pods = [pod("app", None, Some(5))];
    let texts = |seconds| -> Vec<String> {
        let plan = plan(&pods, &policy, Some(secs(seconds)));
        plan.warnings().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        texts(15)[1..],
        ["pods should be unready for 15s before their SIGTERM, but only 10s is available"]
    );
    assert_eq!(texts(20).len(), 1);
}

#[test]
fn a_drain_that_is_cut_is_not_reported_without_pods_to_wait_for() {
    let policy = two_fields(30, 10).with_endpoint_drain(secs(15));
    let plan = plan(&[], &policy, Some(secs(5)));
    assert!(matches!(plan.warnings()[..], [PlanWarning::Shrunk(_)]), "{:?}", plan.warnings());
}
