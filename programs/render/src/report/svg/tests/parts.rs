use std::time::Duration;

use proptest::prelude::*;
use winddown_shutdown::Outcome;

use super::super::milestones;
use super::super::scale::{Reach, Scale};
use super::super::sizes::{fit, width};
use super::{exited, group, ms, report, two_groups};

#[test]
fn ticks_are_round_for_people() {
    let labels = |end: u64| {
        let scale = Scale::new(0.0, 100.0, ms(end));
        scale.ticks().into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(labels(10), "0, 2 ms, 4 ms, 6 ms, 8 ms, 10 ms");
    assert_eq!(labels(950), "0, 0.2 s, 0.4 s, 0.6 s, 0.8 s");
    assert_eq!(labels(8_200), "0, 2 s, 4 s, 6 s, 8 s");
    assert_eq!(labels(33_000), "0, 5 s, 10 s, 15 s, 20 s, 25 s, 30 s");
    assert_eq!(labels(75_000), "0, 15 s, 30 s, 45 s, 1:00 min, 1:15 min");
    assert_eq!(labels(240_000), "0, 1 min, 2 min, 3 min, 4 min");
    assert_eq!(labels(3_700_000), "0, 10 min, 20 min, 30 min, 40 min, 50 min, 1 h 00");
}

#[test]
fn what_is_shown_ends_at_the_limits_or_soon_after_the_run() {
    let reach = Reach::of(&two_groups());
    assert!(!reach.is_magnified());
    assert_eq!((reach.used, reach.limit), (ms(8177), ms(32_000)));
    assert!(reach.end() > ms(32_000));
    let quick =
        report(Outcome::Clean, 500, vec![group(0, Some((0, 500)), vec![exited("a", 0, 499)])]);
    let reach = Reach::of(&quick);
    assert!(reach.is_magnified());
    assert_eq!(reach.end().as_millis(), 560);
}

#[test]
fn a_name_is_cut_in_the_middle() {
    assert_eq!(fit("default/web", 11), "default/web");
    assert_eq!(fit("default/checkout-78e51061-a6cec", 20), "default/c…061-a6cec");
    assert_eq!(fit("漢字漢字漢字", 6), "漢…字");
}

proptest! {
    #[test]
    fn a_cut_name_has_room(name in ".{0,200}", room in 4_usize..60) {
        let wide = |text: &str| text.chars().map(|c| if u32::from(c) < 0x1100 { 1 } else { 2 }).sum::<usize>();
        prop_assert!(wide(&fit(&name, room)) <= room);
    }

    #[test]
    fn ticks_begin_at_zero_go_up_and_are_few(end in prop_oneof![1u64..100_000, 1u64..u64::MAX]) {
        let scale = Scale::new(10.0, 910.0, ms(end));
        let ticks = scale.ticks();
        prop_assert!((1..=11).contains(&ticks.len()), "{}", ticks.len());
        prop_assert_eq!(ticks[0].0, Duration::ZERO);
        prop_assert!(ticks.windows(2).all(|pair| pair[0].0 < pair[1].0));
        prop_assert!(ticks.iter().all(|(at, _)| (10.0..=910.0).contains(&scale.x(*at))));
    }

    #[test]
    fn no_label_of_a_limit_touches_another_or_its_line(
        pods in 0u64..30_000, reserve in 0u64..5_000, took in 10_000u64..32_000,
        delay in 20_000u64..40_000,
        resumed in proptest::collection::vec(0u64..30_000, 0..5),
    ) {
        let mut run = two_groups();
        run.took = ms(took);
        run.budget.pods = ms(pods);
        run.budget.reserve = ms(reserve);
        run.budget.delay = Some(ms(delay));
        run.resumed = resumed.into_iter().map(ms).collect();
        let scale = Scale::new(200.0, 974.0, Reach::of(&run).end());
        let all: Vec<(f64, f64, usize)> = milestones::of(&run, &scale)
            .iter()
            .map(|milestone| {
                let x = scale.x(milestone.at);
                (x, x + 4.0 + width(&milestone.label, 11.0), milestone.lane)
            })
            .collect();
        for (index, (x, end, lane)) in all.iter().enumerate() {
            for (other_x, other_end, other_lane) in &all[index + 1..] {
                let apart = end <= other_x || other_end <= x;
                prop_assert!(apart || lane != other_lane, "{all:?}");
                // A line goes down from its own label through the lanes below.
                let crosses = x < other_x && other_x < end && other_lane >= lane;
                prop_assert!(!crosses, "{all:?}");
            }
        }
    }
}
