use proptest::prelude::*;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn delays_double_from_the_first_to_the_longest_and_then_stay_there() {
    let mut children = Retry::CHILDREN.backoff();
    let children: Vec<_> = (0..13).map(|_| children.next_delay()).collect();
    assert_eq!(children[..4], [1, 2, 4, 8].map(ms));
    assert_eq!(children[9..], [512, 1_000, 1_000, 1_000].map(ms));
    let step = |fraction| [0, 1, 9].map(|failures| Retry::STEP.delay(failures, fraction));
    assert_eq!(step(0.0), [1_000, 2_000, 10_000].map(ms));
    assert_eq!(step(1.0), [1_500, 3_000, 15_000].map(ms), "jitter comes after the longest step");
}

#[test]
fn a_limited_number_of_delays_shares_the_time_and_the_others_end_with_it() {
    for (left, part) in [(10_000, 2_500), (300, 75), (40_000, 10_000)] {
        assert_eq!(Retry::KILL.within(ms(left)).collect::<Vec<_>>(), [ms(part); 4]);
        assert_eq!(Retry::RUNTIME_KILL.within(ms(left)).next(), Some(ms(part.min(1_000))));
    }
    assert_eq!(Retry::START.within(ms(1_200)).collect::<Vec<_>>(), [500, 500, 200].map(ms));
    assert_eq!(Retry::KILL.within(Duration::ZERO).count(), 4, "SIGKILL is sent all the same");
    assert_eq!(Retry::START.within(Duration::ZERO).count(), 1);
}

#[test]
fn a_server_that_asks_for_more_gets_it_but_the_last_try_is_made_at_the_end() {
    let (mut budget, asked) = (Retry::BUDGET.delays(), Some(ms(7_000)));
    assert_eq!(budget.after(None, ms(60_000)), Some(ms(1_000)));
    assert_eq!(budget.after(asked, ms(60_000)), Some(ms(7_000)));
    assert_eq!(budget.after(asked, ms(3_000)), Some(ms(3_000)));
    assert_eq!(budget.after(asked, Duration::ZERO), None);
}

proptest! {
    #[test]
    fn a_delay_fits_into_the_time_that_is_left_and_into_its_jitter_and_never_shrinks(
        (first, longest) in (0_u64..5_000, 0_u64..100_000),
        most in prop::option::of(1_u32..8),
        jitter in prop::sample::select(vec![EXACT, SOONER, LATER]),
        failures in 0_u32..100,
        left in (1_u64..100_000).prop_map(ms),
        fraction in 0.0..=1.0,
    ) {
        let row = Retry { delays: row(first, longest, jitter), most };
        let delay = row.delay(failures, left, fraction);
        let bounds = [0.0, 1.0].map(|fraction| row.delay(failures, left, fraction));
        prop_assert!(bounds[0] <= delay && delay <= bounds[1] && bounds[1] <= Some(left));
        let is_given_up = |failures| most.is_some_and(|most| failures >= most);
        prop_assert_eq!(delay.is_none(), is_given_up(failures));
        prop_assert!(is_given_up(failures + 1) || delay <= row.delay(failures + 1, left, fraction));
        prop_assert_eq!(row.delay(failures, Duration::ZERO, fraction), None);
    }
}
