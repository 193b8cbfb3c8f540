//! When a write is retried, and what is logged about it.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::attempt::WriteAttempt;
use winddown_api_client::refusal::Refusal;

fn wait(attempt: &WriteAttempt) -> Duration {
    attempt.waits_until().map_or(Duration::ZERO, |at| at - Instant::now())
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_when_it_is_over_and_not_between() {
    let mut attempt = WriteAttempt::eager();
    let lines: Vec<_> =
        (0..50).map(|_| attempt.failed(Refusal::NoAnswer, Instant::now())).collect();
    assert_eq!(lines.iter().filter(|line| **line).count(), 1);
    assert!(lines[0]);
    assert!(attempt.succeeded(1, false, Instant::now()), "it is over");
    assert!(!attempt.succeeded(2, false, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_waits_for_is_tried_every_ten_seconds_at_the_latest() {
    let mut attempt = WriteAttempt::eager();
    for _ in 0..50 {
        attempt.failed(Refusal::NoAnswer, Instant::now());
        assert!(wait(&attempt) <= Duration::from_secs(10));
        assert!(!attempt.is_due(Instant::now()));
    }
    attempt.failed(Refusal::NotAllowed, Instant::now());
    assert!(wait(&attempt) <= Duration::from_secs(10), "rights may have been given meanwhile");
    attempt.inputs_changed();
    assert!(attempt.is_due(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_lesser_things_waits_a_minute_at_least() {
    let mut attempt = WriteAttempt::patient();
    attempt.failed(Refusal::NotAllowed, Instant::now());
    assert!(wait(&attempt) >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_at_once_and_the_next_one_is_not() {
    let mut attempt = WriteAttempt::eager();
    assert!(!attempt.failed(Refusal::Conflict, Instant::now()), "nothing to log");
    assert!(attempt.is_due(Instant::now()));
    attempt.failed(Refusal::Conflict, Instant::now());
    assert!(!attempt.is_due(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn only_writes_that_repeat_themselves_without_a_heartbeat_are_a_dispute() {
    let mut attempt = WriteAttempt::eager();
    for heartbeat in [false, true, true] {
        attempt.succeeded(1, heartbeat, Instant::now());
        assert!(attempt.is_due(Instant::now()));
    }
    let mut waits = Vec::new();
    for _ in 0..12 {
        attempt.succeeded(1, false, Instant::now());
        waits.push(wait(&attempt));
        advance(wait(&attempt)).await;
    }
    assert!(waits[0] >= Duration::from_millis(500) && waits[0] <= Duration::from_secs(1));
    assert!(waits[11] >= Duration::from_secs(150), "{waits:?}");
    advance(Duration::from_secs(601)).await;
    attempt.succeeded(1, false, Instant::now());
    assert!(wait(&attempt) <= Duration::from_secs(1), "that one is over");
    attempt.succeeded(2, false, Instant::now());
    assert!(attempt.is_due(Instant::now()), "another thing is written at once");
}
