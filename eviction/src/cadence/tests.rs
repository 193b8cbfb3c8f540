use proptest::prelude::*;

use super::*;
use crate::policy::PressureRule;
use crate::signal::Signal;
use crate::threshold::ThresholdConfig;

const MI: i64 = 1 << 20;
const CAPACITY: i64 = 16 << 30;

fn policy() -> Policy {
    let hard = [("memory.available".to_owned(), "100Mi".to_owned())].into();
    let config = ThresholdConfig { hard, ..ThresholdConfig::default() };
    Policy::new(config.thresholds().unwrap(), false)
}

fn left(available: i64) -> Observations {
    let mut observations = Observations::default();
    let observation = Observation { available, capacity: CAPACITY, at: None };
    observations.set(Signal::MemoryAvailable, Some(observation));
    observations
}

fn after(before: i64, now: i64, apart: u64) -> u128 {
    after_waiting(1000, before, now, apart)
}

fn after_waiting(waited: u64, before: i64, now: i64, apart: u64) -> u128 {
    let [waited, apart] = [waited, apart].map(Duration::from_millis);
    let (before, now) = (left(before * MI), left(now * MI));
    SamplingIntervals::default().next(&policy(), &before, &now, apart, waited).as_millis()
}

#[test]
fn a_calm_node_is_looked_at_every_one_to_ten_seconds_as_a_quarter_of_what_is_left_lasts() {
    assert_eq!(after(4000, 4000, 1000), 1000);
    assert_eq!(after(1000, 4000, 1000), 1000, "it rises");
    assert_eq!(after(4000, 3900, 1000), 1000, "it falls slowly");
    assert_eq!(after(8292, 8292, 1000), 2000, "2 GiB, at 1 GiB a second");
    assert_eq!(after(12_388, 12_388, 1000), 3000);
    assert_eq!(after(60_000, 60_000, 1000), 10_000);
    let nothing = Observations::default();
    let cadence = SamplingIntervals::default();
    let wait = cadence.next(&policy(), &nothing, &nothing, Duration::ZERO, cadence.calm);
    assert_eq!(wait, Duration::from_secs(1));
}

#[test]
fn a_calm_wait_that_is_longer_than_the_far_one_holds() {
    let hour = Duration::from_secs(3600);
    let cadence = SamplingIntervals { calm: hour, ..SamplingIntervals::default() };
    let plenty = left(15_000 * MI);
    let second = Duration::from_secs(1);
    assert_eq!(cadence.next(&policy(), &plenty, &plenty, second, second), hour);
}

#[test]
fn what_falls_fast_is_looked_at_before_it_gets_there() {
    // 1100 MiB are left, and usage grows by 500 MiB per second.
    assert_eq!(after(1700, 1200, 1000), 550);
    assert_eq!(after(1100, 600, 1000), 250);
    assert_eq!(after(500, 120, 1000), 25, "and never more often than forty times a second");
}

#[test]
fn a_rule_on_waits_for_memory_has_it_looked_at_once_a_second() {
    let mut policy = policy();
    policy.memory_pressure = Some(PressureRule::default());
    let (cadence, second) = (SamplingIntervals::default(), Duration::from_secs(1));
    let calm = left(15_000 * MI);
    assert_eq!(cadence.next(&policy, &calm, &calm, second, second), second);
}

#[test]
fn what_stands_still_for_a_moment_while_it_falls_is_looked_at_again_soon() {
    let stood_still = |waited| after_waiting(waited, 400, 400, waited);
    assert_eq!([25, 50, 100, 200, 250, 1000].map(stood_still), [50, 100, 200, 400, 1000, 1000]);
}

#[test]
fn what_is_near_or_short_is_looked_at_four_times_a_second() {
    assert_eq!(after(120, 120, 250), 250);
    assert_eq!(after(90, 90, 250), 250);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_asked_every_ten_seconds_falls_at_a_tenth_of_the_pace_of_a_look() {
    let hard = [("nodefs.available".to_owned(), "1Gi".to_owned())].into();
    let config = ThresholdConfig { hard, ..ThresholdConfig::default() };
    let policy = Policy::new(config.thresholds().unwrap(), false);
    let start = tokio::time::Instant::now();
    let disk = |gib: i64, second: u64| {
        let mut observations = Observations::default();
        let at = Some(start + Duration::from_secs(second));
        let observation = Observation { available: gib << 30, capacity: 1000 << 30, at };
        observations.set(Signal::NodeFsAvailable, Some(observation));
        observations
    };
    let next = |before: &Observations, now: &Observations| {
        let second = Duration::from_secs(1);
        SamplingIntervals::default().next(&policy, before, now, second, second).as_millis()
    };
    // Falls by 20 GiB in ten seconds; 10 GiB are left above the threshold, which last 5 s.
    assert_eq!(next(&disk(31, 0), &disk(11, 10)), 1250);
    // Falls by the same in one second: half a second is left, and the wait is a quarter of it.
    assert_eq!(next(&disk(31, 9), &disk(11, 10)), 125);
    assert_eq!(next(&disk(11, 10), &disk(11, 10)), 2500, "nothing new was said");
    // Falls by 250 GiB in ten seconds; 50 GiB are left, which last 2 s.
    assert_eq!(next(&disk(301, 0), &disk(51, 10)), 500);
    // Falls by 20 GiB in a second; 1 GiB is left: at most ten samples per second.
    assert_eq!(next(&disk(22, 9), &disk(2, 10)), 100);
}

proptest! {
    #[test]
    fn never_sooner_than_the_fastest_nor_later_than_far(
        before in 0..20_000_i64,
        now in 0..20_000_i64,
        apart in 0..5_000_u64,
        waited in 25..1000_u64,
    ) {
        let wait = after_waiting(waited, before, now, apart);
        prop_assert!((25..=10_000).contains(&wait));
    }
}
