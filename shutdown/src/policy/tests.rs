use std::time::Duration;

use super::{CRITICAL_PRIORITY, GroupPeriod, GroupPolicy, Groups, Policy, PolicyError};
use crate::tests::period;

fn group(priority: i32, seconds: u64) -> GroupPolicy {
    GroupPolicy { priority, period: Duration::from_secs(seconds) }
}

fn from_seconds(total: f64, critical: f64) -> Result<Policy, String> {
    let duration = Duration::from_secs_f64;
    Policy::from_periods(duration(total), duration(critical)).map_err(|error| error.to_string())
}

fn groups(policy: &Policy) -> &[GroupPolicy] {
    let Groups::ByPriority(groups) = policy.groups() else { panic!("{policy:?}") };
    groups
}

// Test_migrateConfig of the reference.

#[test]
fn the_two_periods_become_two_groups_each_cut_to_whole_seconds() {
    for (total, critical, first, last) in [
        (300.0, 120.0, 180, 120),
        // No time for critical pods still makes them a group.
        (100.0, 0.0, 100, 0),
        (30.5, 10.2, 20, 10),
        (30.0, 10.5, 19, 10),
    ] {
        let policy = from_seconds(total, critical).unwrap();
        assert_eq!(groups(&policy), [group(0, first), group(CRITICAL_PRIORITY, last)]);
        assert_eq!(policy.requested(), Duration::from_secs(first + last));
    }
}

/// Both make groups of priorities; only one of them is a list that an operator has written.
#[test]
fn what_to_raise_is_in_the_form_that_is_configured() {
    let listed = Policy::by_priority([period(0, 20), period(CRITICAL_PRIORITY, 10)]).unwrap();
    let (seconds, half) = (Duration::from_secs(30), Duration::from_secs(10));
    assert!(listed.what_to_raise().ends_with(" in shutdownGracePeriodByPodPriority"));
    for policy in [Policy::from_periods(seconds, half), Policy::by_role(seconds, half)] {
        let raise = policy.unwrap().what_to_raise();
        assert!(raise.starts_with("shutdownGracePeriod (for critical pods "), "{raise}");
    }
}

#[test]
fn a_total_of_zero_disables() {
    let policy = from_seconds(0.0, 0.0).unwrap();
    assert!(!policy.is_enabled());
    assert_eq!(policy.delay_wanted(), Duration::ZERO);
}

#[test]
fn a_critical_period_longer_than_the_total_is_refused_with_the_kubelets_text() {
    assert_eq!(
        from_seconds(1.0, 100.0).unwrap_err(),
        "invalid configuration: shutdownGracePeriodCriticalPods {1m40s} must be <= \
         shutdownGracePeriod {1s}"
    );
}

#[test]
fn a_period_below_a_second_is_refused_with_the_kubelets_text() {
    assert_eq!(
        from_seconds(0.001, 0.0).unwrap_err(),
        "invalid configuration: shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec"
    );
    assert_eq!(
        from_seconds(5.0, 0.5).unwrap_err(),
        "invalid configuration: shutdownGracePeriodCriticalPods {500ms} must be either zero or \
         otherwise >= 1 sec"
    );
}

#[test]
fn the_list_is_sorted_by_priority() {
    let policy = Policy::by_priority([period(5, 1), period(-1, 2), period(0, 3)]).unwrap();
    assert_eq!(groups(&policy), [group(-1, 2), group(0, 3), group(5, 1)]);
}

#[test]
fn an_empty_list_disables() {
    assert!(!Policy::by_priority([]).unwrap().is_enabled());
}

#[test]
fn the_last_entry_of_a_priority_counts() {
    let twice = Policy::by_priority([period(7, i64::MAX), period(0, 1), period(7, 2)]).unwrap();
    assert_eq!(twice, Policy::by_priority([period(0, 1), period(7, 2)]).unwrap());
}

#[test]
fn a_negative_time_and_an_absurd_sum_are_refused() {
    let text = |groups: &[GroupPeriod]| {
        Policy::by_priority(groups.iter().copied()).unwrap_err().to_string()
    };
    assert_eq!(
        text(&[period(0, -1)]),
        "shutdownGracePeriodByPodPriority: priority 0: shutdownGracePeriodSeconds is -1; give 0 or \
         more"
    );
    assert_eq!(
        text(&[period(0, i64::MAX), period(1, i64::MAX), period(2, i64::MAX)]),
        "the shutdown grace periods add up to more than a year; shorten them"
    );
    assert!(Policy::from_periods(Duration::MAX, Duration::ZERO).is_err());
}

#[test]
fn a_year_is_the_most_that_may_be_asked_for() {
    let (year, more) = (Duration::from_secs(365 * 86_400), Duration::from_secs(1));
    assert_eq!(Policy::from_periods(year, Duration::ZERO).unwrap().requested(), year);
    assert_eq!(Policy::from_periods(year + more, Duration::ZERO), Err(PolicyError::TooLong));
    let (half, whole) = (365 * 43_200, 365 * 86_400);
    assert_eq!(Policy::by_priority([period(0, half), period(1, half)]).unwrap().requested(), year);
    assert_eq!(Policy::by_priority([period(0, whole), period(1, 1)]), Err(PolicyError::TooLong));
}

#[test]
fn the_login_manager_is_asked_for_the_groups_and_the_reserve() {
    let policy = from_seconds(30.0, 10.0).unwrap();
    assert_eq!(policy.delay_wanted(), Duration::from_secs(32));
    let policy = policy.with_reserve(Duration::from_secs(5));
    assert_eq!(policy.delay_wanted(), Duration::from_secs(35));
}

// Roles, the endpoint drain.

#[test]
fn roles_ask_for_the_total_in_whole_seconds() {
    let policy =
        Policy::by_role(Duration::from_millis(30_900), Duration::from_millis(10_900)).unwrap();
    assert!(policy.is_enabled());
    assert_eq!(policy.requested(), Duration::from_secs(30));
    assert_eq!(policy.delay_wanted(), Duration::from_secs(32));
    assert!(!Policy::by_role(Duration::ZERO, Duration::ZERO).unwrap().is_enabled());
}

#[test]
fn roles_refuse_what_the_two_fields_refuse() {
    for (total, critical) in [(5.0, 6.0), (0.5, 0.0), (5.0, 0.5), (400.0 * 86_400.0, 5.0)] {
        let (total, critical) = (Duration::from_secs_f64(total), Duration::from_secs_f64(critical));
        assert_eq!(
            Policy::by_role(total, critical).unwrap_err(),
            Policy::from_periods(total, critical).unwrap_err()
        );
    }
}

#[test]
fn the_endpoint_drain_is_asked_for_beside_the_groups() {
    let drain = Duration::from_secs(15);
    let policy = from_seconds(30.0, 10.0).unwrap().with_endpoint_drain(drain);
    assert_eq!(policy.endpoint_drain(), drain);
    assert_eq!(policy.requested(), Duration::from_secs(45));
    assert_eq!(policy.delay_wanted(), Duration::from_secs(47));
    let off = Policy::disabled().with_endpoint_drain(drain);
    assert_eq!((off.endpoint_drain(), off.delay_wanted()), (Duration::ZERO, Duration::ZERO));
}
