use super::*;
use crate::observation::Observation;

fn memory(available: i64) -> Observations {
    let mut observed = Observations::default();
    let is = Observation { available, capacity: 1000, at: None };
    observed.set(Signal::MemoryAvailable, Some(is));
    observed
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn each_value_is_the_least_of_three_seconds() {
    let since = Instant::now();
    let mut samples = Samples::new(since);
    for (at, available) in [(0, 900), (1, 500), (2, 800), (3, 700), (11, 90)] {
        samples.note(since + secs(at), &memory(available));
    }
    let curve = samples.curve(since + secs(11), Signal::MemoryAvailable, 100).unwrap();
    assert_eq!(curve.available, [Some(500), Some(700), None, Some(90)]);
    assert_eq!((curve.chosen_at, curve.threshold, curve.seconds_each), (3, 100, 3));
    // Signals that were never measured, or are not about memory, have no curve.
    for other in [Signal::AllocatableMemoryAvailable, Signal::PidAvailable] {
        assert_eq!(samples.curve(since + secs(11), other, 100), None);
    }
}

#[tokio::test(start_paused = true)]
async fn three_minutes_are_kept_and_what_is_older_is_gone_also_after_a_pause() {
    let since = Instant::now();
    let mut samples = Samples::new(since);
    for at in 0..600 {
        samples.note(since + secs(at), &memory(i64::try_from(at).unwrap()));
    }
    let curve = samples.curve(since + secs(599), Signal::MemoryAvailable, 1).unwrap();
    assert_eq!((curve.available.len(), curve.chosen_at), (60, 59));
    assert_eq!((curve.available[0], curve.available[59]), (Some(420), Some(597)));
    samples.note(since + secs(5000), &memory(1));
    let curve = samples.curve(since + secs(5000), Signal::MemoryAvailable, 1).unwrap();
    assert_eq!((curve.available, curve.chosen_at), (vec![Some(1)], 0));
}

#[tokio::test(start_paused = true)]
async fn a_curve_goes_on_for_half_a_minute_after_the_eviction_without_allocating() {
    let since = Instant::now();
    let mut samples = Samples::new(since);
    samples.note(since, &memory(90));
    let mut curve = samples.curve(since, Signal::MemoryAvailable, 100).unwrap();
    let room = curve.available.capacity();
    for at in [1, 4, 5, 20, 32, 33, 60] {
        samples.note(since + secs(at), &memory(i64::try_from(at).unwrap()));
        curve.follow(since + secs(at), &samples);
    }
    let told: Vec<i64> = curve.available.iter().map(|value| value.unwrap_or(-1)).collect();
    assert_eq!(told, [1, 4, -1, -1, -1, -1, 20, -1, -1, -1, 32]);
    assert_eq!((curve.chosen_at, curve.available.capacity()), (0, room));
}
