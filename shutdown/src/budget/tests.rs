use std::time::Duration;

use proptest::prelude::*;
use winddown_shared::InhibitorState;

use super::{Budget, why_unawaited};
use crate::tests::secs;
use crate::{Policy, tests::period};

fn policy(total: u64) -> Policy {
    Policy::from_periods(secs(total), secs(total / 3)).unwrap()
}

#[test]
fn the_reserve_comes_out_of_a_delay_that_is_too_short_for_both_and_is_a_tenth_at_most() {
    let policy = policy(30);
    let half = Duration::from_millis(500);
    for (delay, pods, reserve) in [
        (None, secs(30), secs(2)),
        (Some(policy.delay_wanted()), secs(30), secs(2)),
        (Some(secs(3600)), secs(30), secs(2)),
        (Some(secs(30)), secs(28), secs(2)),
        (Some(secs(5)), secs(5) - half, half),
    ] {
        let budget = Budget::new(&policy, delay);
        assert_eq!((budget.pods, budget.reserve), (pods, reserve), "{delay:?}");
    }
}

/// systemd, which stops the agent's unit at once then, waits for it: the run goes by that, and so does what is foretold.
#[test]
fn a_login_manager_that_does_not_wait_takes_no_time_from_the_pods() {
    let mut login = InhibitorState::unknown();
    for (has_lock, delay, pods) in [
        (true, Some(5), Duration::from_millis(4500)),
        (true, Some(0), secs(30)),
        (true, None, secs(30)),
        (false, Some(5), secs(30)),
    ] {
        (login.has_lock, login.delay) = (has_lock, delay.map(secs));
        assert_eq!(Budget::of_login(&policy(30), &login).pods, pods, "{has_lock} {delay:?}");
    }
    (login.has_lock, login.delay) = (true, Some(secs(0)));
    login.delay_set_by = Some("/etc/x.conf".into());
    let why = ": logind's InhibitDelayMaxSec is 0 (set by /etc/x.conf)";
    assert_eq!(why_unawaited(&login).as_deref(), Some(why));
}

#[test]
fn a_notice_gives_all_its_time_but_the_reserve() {
    let budget = Budget::of_notice(&policy(30), secs(120));
    assert_eq!((budget.pods, budget.reserve, budget.requested), (secs(118), secs(2), secs(30)));
    let budget = Budget::of_notice(&policy(30), secs(5));
    assert_eq!((budget.pods, budget.reserve), (Duration::from_millis(4500), secs(5) / 10));
}

#[test]
fn an_end_in_sight_takes_from_the_pods_and_never_gives() {
    let budget = Budget::new(&policy(30), Some(secs(40)));
    assert_eq!(budget.within(secs(40)), budget);
    assert_eq!(budget.within(secs(300)), budget);
    assert_eq!(budget.within(secs(20)).pods, secs(18));
    assert_eq!(budget.within(secs(20)).within(secs(300)).pods, secs(18));
    assert_eq!(budget.within(Duration::ZERO).pods, Duration::ZERO);
    let short = budget.within(secs(5));
    assert_eq!((short.pods, short.reserve), (Duration::from_millis(4500), secs(5) / 10));
}

proptest! {
    #[test]
    fn every_step_stays_in_order_and_within_every_end_in_sight(
        pods in 0..600_000u64, reserve in 0..10_000u64,
        ends in prop::collection::vec(0..900_000u64, 1..5),
    ) {
        let ms = Duration::from_millis;
        let mut budget =
            Budget { requested: ms(pods), pods: ms(pods), reserve: ms(reserve), delay: None };
        for end in ends {
            let less = budget.within(ms(end));
            prop_assert!(less.pods <= budget.pods && less.reserve <= budget.reserve);
            prop_assert!(less.pods <= less.kills_until());
            prop_assert!(less.abandon_at() <= less.report_until());
            prop_assert!(less.report_until() <= ms(end));
            budget = less;
        }
    }

    #[test]
    fn every_step_is_in_order_and_within_the_delay(
        period_seconds in 1..1000i64, reserve in 0..10_000u64, delay in 0..2_000_000u64,
    ) {
        let policy = Policy::by_priority([period(0, period_seconds)]).unwrap();
        let policy = policy.with_reserve(Duration::from_millis(reserve));
        let delay = Duration::from_millis(delay);
        let budget = Budget::new(&policy, Some(delay));
        prop_assert!(budget.pods <= budget.kills_until());
        prop_assert!(budget.kills_until() <= budget.abandon_at());
        prop_assert!(budget.abandon_at() <= budget.report_until());
        prop_assert!(budget.report_until() <= delay);
    }
}
