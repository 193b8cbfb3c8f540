//! Scenarios whose outcome was observed on kubelet 1.36.2. Where these workers differ, the test
//! says what the kubelet does.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::testing::{Script, SyncStep};
use winddown_shared::{
    KillReason, KillRequest, Lifecycle, PodKiller, Retry, RuntimeView, StatusOverride, UpdateKind,
};

use super::{
    bench, deleted, evict, in_phase, in_runtime, pod, pod_with, request, secs, settle, static_pod,
    stop, sync, uid, uids, with_grace,
};

/// The kubelet leaves the caller waiting for ten seconds and reports that the grace was exceeded.
#[tokio::test(start_paused = true)]
async fn a_kill_of_a_finished_pod_returns_at_once() {
    let b = bench();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    settle().await;
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(b.events.events().iter().all(|e| !format!("{e:?}").contains("Exceeded")));
}

/// The kubelet leaves the caller waiting, answers "not terminating", and keeps its place in line.
#[tokio::test(start_paused = true)]
async fn a_queued_static_pod_is_ended_without_a_step_and_leaves_its_place() {
    let b = bench();
    let [one, two, three] = ["1", "2", "3"].map(|u| static_pod(u, "web"));
    for pod in [&one, &two, &three] {
        b.create(pod);
    }
    settle().await;
    let begun = Instant::now();
    b.workers.kill_pod(two.clone(), request()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(b.steps(&two).is_empty());
    assert!(b.workers.is_known_terminated(two.uid()));
    b.workers.sync_known_pods(&uids(&[&one, &three]));
    b.create(&two);
    b.kill(&one);
    settle().await;
    assert_eq!(b.workers.lifecycle(three.uid()), Some(Lifecycle::Syncing), "two is behind three");
}

#[tokio::test(start_paused = true)]
async fn a_queued_static_pod_that_is_not_desired_is_forgotten() {
    let b = bench();
    let (one, two) = (static_pod("1", "web"), static_pod("2", "web"));
    b.create(&one);
    b.create(&two);
    settle().await;
    b.workers.sync_known_pods(&uids(&[&one]));
    assert_eq!(b.workers.lifecycle(two.uid()), None);
    settle().await;
    assert!(b.steps(&two).is_empty());
}

/// The kubelet drops the real update, or the kill and its waiting caller, with the record.
#[tokio::test(start_paused = true)]
async fn a_real_update_or_kill_that_comes_while_a_stray_is_stopped_is_carried_out() {
    for kill in [true, false] {
        let b = bench();
        b.script(&pod("a"), Script { stop_takes: secs(1), ..Script::default() });
        b.workers.kill_runtime_pod(&in_runtime(&pod("a")));
        settle().await;
        if kill {
            b.workers.kill_pod(pod("a"), request()).await.unwrap();
        } else {
            b.update(&pod("a"));
        }
        tokio::time::sleep(secs(5)).await;
        assert_eq!(b.steps(&pod("a")), [SyncStep::TerminateRuntime, stop(1), SyncStep::Finish]);
        let again = !b.workers.sync_known_pods(&uids(&[&pod("a")])).contains_key(&uid("a"));
        assert_eq!(again, !kill, "an update wants the pod, a kill does not");
    }
}

#[tokio::test(start_paused = true)]
async fn a_real_update_after_a_failed_stop_of_a_stray_is_torn_down_as_a_pod() {
    let b = bench();
    b.script(&pod("a"), Script { stop_fails: 1, ..Script::default() });
    b.workers.kill_runtime_pod(&in_runtime(&pod("a")));
    settle().await;
    b.update(&pod("a"));
    settle().await;
    assert_eq!(b.steps(&pod("a")), [SyncStep::TerminateRuntime, stop(1), SyncStep::Finish]);
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}

/// The kubelet notes only the flag of whichever came first.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_and_evicted_is_both_in_either_order() {
    for deleted_first in [true, false] {
        let b = bench();
        b.script(&pod("a"), Script { stop_takes: secs(5), ..Script::default() });
        b.create(&pod("a"));
        settle().await;
        if deleted_first {
            b.update(&deleted("a", 30));
            b.workers.request_kill(pod("a"), &evict());
        } else {
            b.workers.request_kill(pod("a"), &evict());
            b.update(&deleted("a", 30));
        }
        tokio::time::sleep(secs(6)).await;
        assert!(b.workers.should_content_be_removed(&uid("a")));
    }
}

/// The kubelet cancels the running stop as well, to start it again.
#[tokio::test(start_paused = true)]
async fn a_kill_cancels_a_running_sync_an_update_does_not_and_a_shorter_grace_reaches_a_stop() {
    let b = bench();
    let slow = Script { sync_takes: secs(100), stop_takes: secs(100), ..Script::default() };
    b.script(&pod("a"), slow);
    b.create(&pod("a"));
    settle().await;
    let begun = Instant::now();
    b.update(&pod("a"));
    tokio::time::sleep(secs(10)).await;
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create)]);
    b.kill(&pod("a"));
    settle().await;
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create), stop(30)]);
    b.update(&pod("a"));
    b.workers.kill_pod(pod("a"), with_grace(1)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 11);
    settle().await;
    assert_eq!(b.steps(&pod("a"))[1..], [stop(30), SyncStep::Finish], "one stop, made shorter");
}

#[tokio::test(start_paused = true)]
async fn every_attempt_gets_the_status_that_was_the_last_one_by_then() {
    let b = bench();
    let kill =
        |reason: &str| request().with_status(Some(StatusOverride::failed(reason, "m", None)));
    b.script(&pod("a"), Script { stop_fails: 2, ..Script::default() });
    b.workers.request_kill(pod("a"), &kill("one"));
    settle().await;
    b.workers.request_kill(pod("a"), &kill("two"));
    settle().await;
    b.workers.resync(&uid("a"));
    settle().await;
    let reasons = b.steps(&pod("a")).into_iter().filter_map(|s| match s {
        SyncStep::Terminate { status, .. } => Some(status?.reason.to_string()),
        _ => None,
    });
    let reasons: Vec<String> = reasons.collect();
    assert_eq!(reasons, ["one", "two", "two"]);
}

/// The kubelet takes no step for a static pod that is over when first seen; here its resources are
/// freed, which is safe to repeat.
#[tokio::test(start_paused = true)]
async fn a_static_pod_first_seen_over_or_killed_is_not_stopped_if_nothing_of_it_runs() {
    let over = pod_with("over", "web", |p| {
        p.metadata.annotations = static_pod("x", "x").metadata.annotations.clone();
        p.status = in_phase("x", "Failed").status.clone();
    });
    let b = bench();
    b.create(&over);
    b.kill(&static_pod("killed", "other"));
    settle().await;
    assert_eq!(b.steps(&over), [SyncStep::Finish]);
    assert!(b.syncer.steps(&uid("killed")).is_empty());
    for uid in [over.uid(), &uid("killed")] {
        assert_eq!(b.workers.lifecycle(uid), Some(Lifecycle::Finished));
    }
}

/// The kubelet's worker lives in the context of the first update's sender.
#[tokio::test(start_paused = true)]
async fn a_worker_outlives_the_task_that_sent_its_first_update() {
    let b = bench();
    let workers = b.workers.clone();
    let first = tokio::spawn(async move {
        workers.update(UpdateKind::Create, pod("a"), None);
        std::future::pending::<()>().await;
    });
    settle().await;
    first.abort();
    settle().await;
    b.update(&pod("a"));
    settle().await;
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create), sync(UpdateKind::Update)]);
}

/// A step cannot return both "it is over" and an error here: it returns one or the other.
#[tokio::test(start_paused = true)]
async fn a_sync_that_fails_does_not_end_its_pod() {
    let b = bench();
    b.script(&pod("a"), Script { terminal: true, sync_fails: 1, ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    assert!(!b.workers.is_termination_requested(&uid("a")));
    assert_eq!(winddown_shared::SyncError::new("x").retry, Retry::STEP);
}

#[tokio::test(start_paused = true)]
async fn a_stray_of_a_running_pod_ends_the_real_pod_with_the_shortest_grace() {
    let b = bench();
    b.create(&pod("a"));
    settle().await;
    b.workers.kill_runtime_pod(&in_runtime(&pod("a")));
    settle().await;
    assert_eq!(b.steps(&pod("a")), [sync(UpdateKind::Create), stop(1), SyncStep::Finish]);
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    assert!(b.workers.should_content_be_removed(&uid("a")), "deleted");
}

/// The kubelet finishes it without stopping its containers.
#[tokio::test(start_paused = true)]
async fn a_stray_of_a_queued_static_pod_is_stopped() {
    let b = bench();
    let (one, two) = (static_pod("1", "web"), static_pod("2", "web"));
    b.create(&one);
    b.create(&two);
    settle().await;
    b.workers.kill_runtime_pod(&in_runtime(&two));
    settle().await;
    assert_eq!(b.steps(&two), [stop(1), SyncStep::Finish]);
}

/// The kubelet retries it with the backoff of an error; here, the termination that cancelled it
/// follows at once.
#[tokio::test(start_paused = true)]
async fn a_cancelled_sync_is_followed_by_what_cancelled_it() {
    let b = bench();
    b.script(&pod("a"), Script { sync_takes: secs(60), terminal: true, ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    b.workers.sync_known_pods(&HashSet::new());
    settle().await;
    assert_eq!(b.steps(&pod("a"))[1..], [stop(30), SyncStep::Finish]);
}

/// The kubelet takes over the object of the kill although it is older.
#[tokio::test(start_paused = true)]
async fn an_older_object_in_a_kill_does_not_replace_the_spec() {
    let b = bench();
    b.update(&pod_with("a", "newer", |_| {}));
    settle().await;
    b.kill(&pod_with("a", "older", |_| {}));
    settle().await;
    assert!(b.syncer.calls().iter().all(|c| &*c.name == "newer"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_killed_when_first_seen_stays_finished_until_it_is_created_anew() {
    let b = bench();
    let a = pod("a");
    b.kill(&a);
    settle().await;
    let known = b.workers.sync_known_pods(&uids(&[&a]));
    assert_eq!(known[a.uid()], Lifecycle::Finished);
    b.update(&a);
    settle().await;
    assert_eq!(b.steps(&a), [stop(30), SyncStep::Finish]);
    b.create(&a);
    assert!(b.workers.has_restart_requests());
    assert!(b.workers.sync_known_pods(&uids(&[&a])).is_empty());
}

/// The kubelet waits for the sync, and passes no grace period on although it noted 30 s.
#[tokio::test(start_paused = true)]
async fn an_orphan_is_stopped_with_its_grace_and_its_sync_is_cancelled() {
    let b = bench();
    b.script(&pod("syncing"), Script { sync_takes: secs(3600), ..Script::default() });
    b.create(&pod("idle"));
    b.create(&pod("syncing"));
    settle().await;
    let known = b.workers.sync_known_pods(&HashSet::new());
    assert!(known.values().all(|l| *l == Lifecycle::Terminating));
    settle().await;
    for name in ["idle", "syncing"] {
        assert_eq!(b.steps(&pod(name)), [sync(UpdateKind::Create), stop(30), SyncStep::Finish]);
        assert!(b.workers.should_content_be_removed(&uid(name)), "deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pods_name_is_terminating_while_its_stop_is_tried_again() {
    let b = bench();
    let web = static_pod("web", "web");
    b.create(&web);
    settle().await;
    assert!(!b.workers.is_static_pod_terminating(web.full_name()));
    b.script(&web, Script { stop_fails: 9, ..Script::default() });
    b.kill(&web);
    settle().await;
    assert!(b.workers.is_static_pod_terminating(web.full_name()));
}

/// The kubelet ignores the eviction, and keeps an update on the finished record.
#[tokio::test(start_paused = true)]
async fn an_eviction_of_a_pod_that_is_being_freed_returns_and_is_noted() {
    let b = bench();
    b.script(&pod("a"), Script { finish_fails: 1, ..Script::default() });
    b.kill(&pod("a"));
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminated));
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), evict().with_grace(Some(secs(1)))).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(b.steps(&pod("a")), [stop(30), SyncStep::Finish, SyncStep::Finish]);
    assert!(b.workers.should_content_be_removed(&uid("a")));
}

/// The kubelet runs two workers for the UID: the purged one wakes up for the new record.
#[tokio::test(start_paused = true)]
async fn a_uid_that_is_forgotten_and_comes_back_has_one_worker() {
    let b = bench();
    let (one, two) = (static_pod("1", "web"), static_pod("2", "web"));
    b.create(&one);
    settle().await;
    b.script(&two, Script { sync_takes: secs(1), ..Script::default() });
    for _ in 0..5 {
        // A task of the first record is spawned but has not run when its record is removed.
        b.create(&two);
        b.workers.sync_known_pods(&uids(&[&one]));
    }
    b.create(&two);
    b.kill(&one);
    tokio::time::sleep(secs(10)).await;
    // The scripted syncer panics when two steps of one UID overlap.
    assert_eq!(b.steps(&two), [sync(UpdateKind::Create)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_overwritten_while_it_waits_is_lost_from_the_update_and_not_from_the_record() {
    let b = bench();
    b.workers.request_kill(pod("a"), &evict().with_grace(Some(secs(3))));
    b.update(&pod("a"));
    settle().await;
    assert_eq!(b.steps(&pod("a")), [stop(3), SyncStep::Finish]);
    assert!(b.workers.should_content_be_removed(&uid("a")), "evicted");
}

/// The kubelet's wait overflows and fails at once.
#[tokio::test(start_paused = true)]
async fn a_grace_of_ages_does_not_overflow() {
    for grace in [Duration::from_secs(7_000_000_000), Duration::from_secs(1 << 62), Duration::MAX] {
        let b = bench();
        b.script(&pod("a"), Script { stop_takes: secs(60), ..Script::default() });
        let kill = KillRequest::new(KillReason::Operator).with_grace(Some(grace));
        b.workers.kill_pod(pod("a"), kill).await.unwrap();
    }
}

/// The kubelet's passes leave the pod as it is; its work queue retries. Here the timetable does.
#[tokio::test(start_paused = true)]
async fn passes_do_not_drive_a_desired_pod_whose_stop_failed_and_its_own_time_does() {
    let b = bench();
    let a = pod("a");
    b.create(&a);
    settle().await;
    b.script(&a, Script { stop_fails: 1, ..Script::default() });
    b.kill(&a);
    settle().await;
    b.create(&a);
    for _ in 0..5 {
        b.workers.sync_known_pods(&uids(&[&a]));
        settle().await;
    }
    assert_eq!(b.workers.lifecycle(a.uid()), Some(Lifecycle::Terminating));
    tokio::time::sleep(secs(2)).await;
    assert_eq!(b.workers.lifecycle(a.uid()), Some(Lifecycle::Finished));
}

#[test]
fn a_pod_that_is_not_known_to_anybody_has_an_unknown_runtime() {
    assert_eq!(RuntimeView::default(), RuntimeView::NotYetKnown);
}
