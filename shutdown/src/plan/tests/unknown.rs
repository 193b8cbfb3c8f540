//! Pods that only the runtime knows.

use winddown_shared::{PodUid, RuntimePod};

use super::*;

fn orphan(name: &str, grace: Option<u64>) -> Pod {
    let mut found = RuntimePod::new(PodUid::new(name), name, "default", true);
    found.grace = grace.map(secs);
    Pod::of_runtime(&found)
}

#[test]
fn they_make_one_more_group_which_is_the_last_and_has_a_name() {
    for policy in [by_priority(&[(0, 10), (7, 20)]), Policy::by_role(secs(30), secs(10)).unwrap()] {
        let pods = [orphan("lost", Some(5)), pod("app", Some(0), Some(5))];
        let plan = plan(&pods, &policy, None);
        let last = plan.groups.last().unwrap();
        assert_eq!(last.name().as_deref(), Some("pods without a manifest"));
        assert_eq!((&**last.pods[0].pod.name(), last.pods[0].grace), ("lost", secs(5)));
        assert_eq!(last.latest_end, plan.deadline);
        assert!(plan.groups.iter().is_sorted_by_key(|group| group.priority));
        assert_eq!(plan.requested, secs(30));
    }
}

#[test]
fn there_is_no_such_group_without_them_and_none_in_a_policy_that_ends_nothing() {
    let app = pod("app", None, None);
    assert_eq!(plan(std::slice::from_ref(&app), &two_fields(30, 10), None).groups.len(), 2);
    assert_eq!(plan(&[orphan("lost", None)], &Policy::disabled(), None).groups.len(), 0);
}

#[test]
fn they_share_the_configured_time_with_the_others() {
    let pods =
        |lost| [pod("app", None, Some(60)), pod("last", Some(9), Some(60)), orphan("lost", lost)];
    let policy = by_priority(&[(0, 20), (9, 10)]);
    assert_eq!(allowed(&plan(&pods(Some(4)), &policy, None)), [16, 10, 4]);
    assert_eq!(allowed(&plan(&pods(Some(600)), &policy, None)), [10, 10, 10]);
    // An unknown grace period counts as the API server's default.
    assert_eq!(allowed(&plan(&pods(None), &policy, None)), [10, 10, 10]);
    assert_eq!(allowed(&plan(&pods(Some(4)), &policy, Some(secs(9)))), [3, 3, 3]);
}

#[test]
fn the_highest_priority_there_is_does_not_make_a_pod_one_of_them() {
    let pods = [orphan("lost", Some(1)), pod("top", Some(i32::MAX), None)];
    let plan = plan(&pods, &two_fields(30, 10), None);
    assert_eq!(names(&plan), [vec![], vec!["top"], vec!["lost"]]);
}

#[test]
fn what_becomes_known_late_is_planned_into_what_is_left_and_ends_no_later() {
    let policy = two_fields(30, 10);
    let late = plan(&[], &policy, None)
        .replan(&[orphan("lost", Some(60)), pod("a", None, None)], secs(20));
    assert_eq!((late.deadline, ends(&late)), (secs(30), vec![25, 25, 30]));
    let mut extended = plan(&[], &policy, None);
    extended.extend_to(secs(60));
    assert_eq!(extended.replan(&[pod("a", None, None)], secs(20)).deadline, secs(60));
    let mut growing = plan(&[], &policy, None);
    assert_eq!(growing.group_for(&orphan("lost", None)), Some(2));
    assert_eq!((growing.groups.len(), growing.groups[2].latest_end), (3, secs(30)));
    assert_eq!(growing.group_for(&orphan("other", None)), Some(2));
}
