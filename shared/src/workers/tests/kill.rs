use std::time::Duration;

use tokio::time::Instant;

use super::{bench, pod, pod_with, request, settle, static_pod, uid, with_grace};
use crate::fake::{Script, Step};
use crate::workers::grace::effective;
use crate::{Event, KillError, Lifecycle, PodKiller, StatusOverride, UpdateKind};

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[tokio::test(start_paused = true)]
async fn kill_pod_returns_when_the_last_container_is_gone() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(3), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let begun = Instant::now();
    let stopped = b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), secs(3));
    assert!(!stopped.forced());
    assert!(!b.workers.could_have_running_containers(&uid("a")));
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_never_lost_behind_later_updates() {
    let b = bench();
    for i in 0..20 {
        let name = format!("p{i}");
        b.workers.update(UpdateKind::Create, pod(&name), None);
        b.workers.request_kill(pod(&name), &request());
        b.workers.update(UpdateKind::Update, pod(&name), None);
    }
    settle().await;
    for i in 0..20 {
        let name = uid(&format!("p{i}"));
        assert_eq!(b.workers.lifecycle(&name), Some(Lifecycle::Finished));
        let stop = Step::Terminate { grace: Some(secs(30)), status: None };
        let steps = b.syncer.steps(&name);
        assert!(steps.ends_with(&[stop, Step::Finish]), "{steps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_cancels_the_sync_that_is_under_way() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { sync_takes: secs(600), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert!(begun.elapsed() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_never_seen_before_can_be_killed() {
    let b = bench();
    b.workers.kill_pod(pod("new"), with_grace(0)).await.unwrap();
    settle().await;
    let stop = Step::Terminate { grace: Some(secs(1)), status: None };
    assert_eq!(b.syncer.steps(&uid("new")), [stop, Step::Finish]);
}

#[tokio::test(start_paused = true)]
async fn killing_a_finished_pod_returns_at_once() {
    let b = bench();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_reaches_a_stop_in_flight() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(300), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let begun = Instant::now();
    b.workers.request_kill(pod("a"), &with_grace(200));
    tokio::time::sleep(secs(5)).await;
    let stopped = b.workers.kill_pod(pod("a"), with_grace(2)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 7);
    assert!(stopped.forced());
}

#[tokio::test(start_paused = true)]
async fn a_longer_grace_changes_nothing() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(300), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b.workers.request_kill(pod("a"), &with_grace(5));
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), with_grace(100)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_kill_past_its_deadline_says_what_runs_and_goes_on() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_fails: 8, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let error = b.workers.kill_pod(pod("a"), with_grace(2)).await.unwrap_err();
    assert_eq!(
        error,
        KillError::Deadline {
            pod: "default/a".into(),
            waited: secs(10),
            still_running: vec!["main".into()]
        }
    );
    assert_eq!(error.to_string(), "pod default/a still runs after 10s: main");
    assert!(b.events.events().iter().any(|e| matches!(e, Event::ExceededGracePeriod { .. })));
    tokio::time::sleep(secs(120)).await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_huge_grace_does_not_overflow_the_deadline() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(3), ..Script::default() });
    let endless = crate::KillRequest { grace: Some(Duration::MAX), ..request() };
    b.workers.kill_pod(pod("a"), endless).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_caller_of_one_kill_is_told() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(3), ..Script::default() });
    let calls = (0..10).map(|_| b.workers.kill_pod(pod("a"), request()));
    let results = futures_util::future::join_all(calls).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(b.syncer.steps(&uid("a")).len(), 1 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_told_also_when_the_record_is_removed_under_it() {
    let b = bench();
    b.workers.update(UpdateKind::Create, static_pod("old", "web"), None);
    b.workers.update(UpdateKind::Create, static_pod("new", "web"), None);
    settle().await;
    let begun = Instant::now();
    b.workers.kill_pod(static_pod("new", "web"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(b.syncer.steps(&uid("new")).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_status_registered_before_an_attempt_is_the_one_it_gets() {
    let b = bench();
    let status = |text: &str| Some(StatusOverride::failed(text, "m", None));
    let kill = |text: &str| crate::KillRequest { status: status(text), ..request() };
    b.syncer.script(&uid("a"), Script { stop_fails: 2, ..Script::default() });
    b.workers.request_kill(pod("a"), &kill("one"));
    settle().await;
    b.workers.request_kill(pod("a"), &kill("two"));
    tokio::time::sleep(secs(60)).await;
    let reasons: Vec<_> = b
        .syncer
        .steps(&uid("a"))
        .into_iter()
        .filter_map(|s| match s {
            Step::Terminate { status, .. } => status.map(|s| s.reason.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["one", "two", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_after_a_deletion_still_marks_the_pod_evicted() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(3), ..Script::default() });
    b.workers.request_kill(pod("a"), &request());
    settle().await;
    let evict = crate::KillRequest { evict: true, ..request() };
    b.workers.kill_pod(pod("a"), evict).await.unwrap();
    assert!(b.workers.should_content_be_removed(&uid("a")));
}

#[tokio::test(start_paused = true)]
async fn the_spec_that_started_the_containers_stops_them() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_fails: 1, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod_with("a", "old", |_| {}), None);
    settle().await;
    b.workers.request_kill(pod_with("a", "old", |_| {}), &request());
    settle().await;
    b.workers.update(UpdateKind::Update, pod_with("a", "new", |_| {}), None);
    tokio::time::sleep(secs(30)).await;
    assert!(b.syncer.calls().iter().all(|c| &*c.name == "old"));
}

#[tokio::test(start_paused = true)]
async fn callers_are_told_when_the_workers_shut_down() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(20), ..Script::default() });
    let workers = b.workers.clone();
    let call = tokio::spawn(async move { workers.kill_pod(pod("a"), request()).await });
    settle().await;
    b.workers.shut_down().await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error, KillError::WorkersGone { pod: "default/a".into() });
}

/// (grace so far, spec, deletion, requested) → the effective grace.
#[test]
fn the_smallest_grace_anybody_asked_for_applies() {
    type Row = (Option<u64>, Option<i64>, Option<i64>, Option<u64>, u64);
    let rows: [Row; 14] = [
        (None, Some(30), None, None, 30),
        (None, None, None, None, 1),
        (None, Some(30), Some(0), None, 1),
        (None, Some(30), Some(5), None, 5),
        (None, Some(30), Some(5), Some(2), 2),
        (None, Some(30), Some(5), Some(0), 1),
        (None, Some(30), None, Some(60), 60),
        (None, Some(30), Some(10), Some(60), 10),
        (Some(30), Some(30), None, Some(0), 1),
        (Some(30), Some(30), None, Some(60), 30),
        (Some(30), Some(5), None, None, 30),
        (Some(1), Some(5), Some(10), Some(7), 1),
        (None, Some(-5), None, None, 1),
        // The kubelet reads a deletion with grace 0 as "unset" here and returns 30.
        (None, None, Some(0), Some(30), 1),
    ];
    for (current, spec, deletion, asked, expected) in rows {
        let pod = pod_with("a", "a", |p| {
            p.metadata.deletion_grace_period_seconds = deletion;
            p.spec.as_mut().unwrap().termination_grace_period_seconds = spec;
        });
        let got = effective(current.map(secs), Some(&pod), asked.map(secs));
        assert_eq!(got, secs(expected), "{:?}", (current, spec, deletion, asked));
    }
}
