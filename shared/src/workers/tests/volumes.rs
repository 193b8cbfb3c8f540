//! Waiting for what a stopped pod still holds.

use std::time::Duration;

use tokio::time::Instant;

use super::{Bench, bench, pod, request, settle, uid};
use crate::testing::{Script, SyncStep};
use crate::{PodKiller, UpdateKind};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A pod that runs and will be stopped as the script says.
async fn running(script: Script) -> Bench {
    let b = bench();
    b.syncer.script(&uid("a"), script);
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b
}

async fn released(b: &Bench, within: Duration) -> (Vec<String>, Duration) {
    let begun = Instant::now();
    let left = b.workers.volumes_released(&uid("a"), begun + within).await;
    (left, begun.elapsed())
}

fn mounts() -> Vec<String> {
    vec!["/pods/a/data".to_owned()]
}

#[tokio::test(start_paused = true)]
async fn cleaning_begins_the_moment_the_last_container_is_gone() {
    let b = running(Script { stop_takes: secs(3), ..Script::default() }).await;
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    settle().await;
    let calls = b.syncer.calls();
    let finish = calls.iter().find(|c| c.step == SyncStep::Finish).unwrap();
    assert_eq!(finish.at - begun, secs(3));
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_when_the_cleaning_is_done() {
    let script = Script { finish_takes: secs(2), mounts: mounts(), ..Script::default() };
    let b = running(script).await;
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(released(&b, secs(60)).await, (vec![], secs(2)));
    assert_eq!(released(&b, secs(60)).await, (vec![], Duration::ZERO), "finished: at once");
}

#[tokio::test(start_paused = true)]
async fn many_wait_and_one_that_comes_before_the_stop_waits_for_that_too() {
    let b = running(Script { stop_takes: secs(1), finish_takes: secs(1), ..Script::default() });
    let b = b.await;
    b.workers.request_kill(pod("a"), &request());
    let two = tokio::join!(released(&b, secs(60)), released(&b, secs(60)));
    assert_eq!(two, ((vec![], secs(2)), (vec![], secs(2))));
}

#[tokio::test(start_paused = true)]
async fn what_is_mounted_at_the_deadline_is_named_and_the_cleaning_goes_on() {
    let script = Script { finish_takes: secs(60), mounts: mounts(), ..Script::default() };
    let b = running(script).await;
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(released(&b, secs(5)).await, (mounts(), secs(5)));
    assert_eq!(released(&b, secs(600)).await, (vec![], secs(55)));
}

#[tokio::test(start_paused = true)]
async fn a_cleaning_that_fails_and_succeeds_later_is_waited_for() {
    let b = running(Script { finish_fails: 2, ..Script::default() }).await;
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    let (left, took) = released(&b, secs(60)).await;
    assert!(left.is_empty() && took > secs(2) && took < secs(6), "{left:?} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cleaning_that_hangs_on_nothing_mounted_does_not_take_all_of_the_time() {
    let b = running(Script { finish_takes: secs(600), ..Script::default() }).await;
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    let (left, took) = released(&b, secs(5)).await;
    assert!(left.is_empty() && took <= secs(5), "{left:?} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_say_what_is_mounted_does_not_hold_up_anybody() {
    let script = Script { finish_takes: secs(600), mounts_hang: true, ..Script::default() };
    let b = running(script).await;
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    for within in [Duration::ZERO, Duration::from_millis(100), secs(5)] {
        let (left, took) = released(&b, within).await;
        assert!(left[0].starts_with("unknown: "), "{left:?}");
        assert_eq!(took, within);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_holds_nothing_and_workers_that_are_gone_have_freed_nothing() {
    let b = running(Script { mounts: mounts(), ..Script::default() }).await;
    assert!(b.workers.volumes_released(&uid("nobody"), Instant::now() + secs(9)).await.is_empty());
    let waits = released(&b, secs(60));
    let gone = async {
        settle().await;
        b.workers.shut_down().await;
    };
    let ((left, took), ()) = tokio::join!(waits, gone);
    // An agent that stops is not to take it for the last word.
    assert_eq!((left, took), (mounts(), secs(60)));
    assert_eq!(released(&b, secs(60)).await.0, mounts());
}
