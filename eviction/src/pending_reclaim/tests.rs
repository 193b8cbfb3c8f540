use super::*;
use crate::Observation;
use winddown_shared::PressureCondition;

const SIGNAL: Signal = Signal::ImageFsAvailable;
const MIB: i64 = 1 << 20;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn left(mib: i64) -> Observations {
    let mut all = Observations::default();
    all.set(SIGNAL, Some(Observation { available: mib * MIB, capacity: 1000 * MIB, at: None }));
    all
}

fn leaves(mib: i64) -> Amounts {
    let mut amounts = Amounts::default();
    amounts[SIGNAL.index()] = mib * MIB;
    amounts
}

/// A pod that left this much behind has stopped when 100 MiB were available.
fn after(mib: i64, now: Instant) -> PendingReclaim {
    let mut pending_reclaim = PendingReclaim::default();
    pending_reclaim.ask(PressureCondition::Disk, &leaves(mib), now, &left(100));
    assert!(!pending_reclaim.is_awaited(SIGNAL, now), "the pod itself is waited for elsewhere");
    pending_reclaim.note_end(PressureCondition::Disk, now);
    pending_reclaim
}

#[tokio::test(start_paused = true)]
async fn about_all_that_a_pod_had_is_waited_for() {
    let now = Instant::now();
    for (steps, is_awaited) in [
        (&[100, 100][..], true),
        (&[270], true),
        (&[280], false),
        // Freed in pieces, while another pod writes: the sum of the increases counts.
        (&[90, 170, 140, 220, 200, 219], true),
        (&[90, 170, 140, 220, 200, 220], false),
    ] {
        let mut pending_reclaim = after(240, now);
        steps.iter().for_each(|step| pending_reclaim.observe(&left(*step)));
        assert_eq!(pending_reclaim.is_awaited(SIGNAL, now + secs(1.0)), is_awaited, "{steps:?}");
        assert!(!pending_reclaim.is_awaited(Signal::NodeFsAvailable, now), "it had nothing there");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_leaves_nothing_changes_nothing_of_what_is_waited_for() {
    let now = Instant::now();
    let mut pending_reclaim = after(240, now);
    pending_reclaim.ask(PressureCondition::Disk, &leaves(0), now, &left(100));
    assert!(pending_reclaim.is_awaited(SIGNAL, now + secs(1.0)));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_back_is_given_up_and_sooner_when_nothing_would_be_left() {
    let now = Instant::now();
    for (at_last, seconds, is_awaited) in [
        (100, 29.9, true),
        (100, 30.0, false),
        // Falls by 1 MiB per second: more than enough is left.
        (90, 10.0, true),
        // At this rate the last MiB is used in the last second.
        (50, 15.0, true),
        // Falls by 5 MiB per second, or 6: 75 MiB would last 15 s.
        (75, 4.9, true),
        (75, 5.0, false),
        (70, 5.0, false),
        (0, 4.9, true),
        (0, 5.0, false),
    ] {
        let mut pending_reclaim = after(240, now);
        pending_reclaim.observe(&left(at_last));
        let then = now + secs(seconds);
        assert_eq!(
            pending_reclaim.is_awaited(SIGNAL, then),
            is_awaited,
            "{at_last} MiB after {seconds} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_begins_anew_once_when_what_is_left_was_given_back() {
    let now = Instant::now();
    let mut pending_reclaim = after(240, now);
    for seconds in [10.0, 20.0, 30.0] {
        pending_reclaim.note_reclaimed(now + secs(seconds));
    }
    assert!(pending_reclaim.is_awaited(SIGNAL, now + secs(39.9)));
    assert!(!pending_reclaim.is_awaited(SIGNAL, now + secs(40.0)));
}

#[tokio::test(start_paused = true)]
async fn pods_that_end_one_after_the_other_owe_together_and_old_debts_are_not_added() {
    let now = Instant::now();
    let mut pending_reclaim = after(100, now);
    pending_reclaim.ask(PressureCondition::Disk, &leaves(100), now + secs(1.0), &left(100));
    pending_reclaim.note_end(PressureCondition::Disk, now + secs(2.0));
    pending_reclaim.observe(&left(200));
    assert!(pending_reclaim.is_awaited(SIGNAL, now + secs(2.0)), "of 200");
    pending_reclaim.observe(&left(250));
    assert!(!pending_reclaim.is_awaited(SIGNAL, now + secs(2.0)));
    pending_reclaim.ask(PressureCondition::Disk, &leaves(40), now + secs(3.0), &left(250));
    pending_reclaim.note_end(PressureCondition::Disk, now + secs(3.0));
    assert!(pending_reclaim.is_awaited(SIGNAL, now + secs(3.0)), "what came before is not counted");
    pending_reclaim.forget(PressureCondition::Disk);
    assert!(!pending_reclaim.is_awaited(SIGNAL, now + secs(3.0)));
}
