use std::collections::HashSet;
use std::time::Duration;

use super::{bench, pod, pod_with, request, settle, uid};
use crate::testing::{Script, SyncStep};
use crate::{Event, Lifecycle, PodKiller, RunningPods, UpdateKind};

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_synced_again_after_the_resync_interval() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    tokio::time::sleep(Duration::from_secs(91)).await;
    let steps = b.syncer.steps(&uid("a"));
    assert_eq!(steps, [SyncStep::Sync(UpdateKind::Create), SyncStep::Sync(UpdateKind::Sync)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_tried_again_with_growing_waits() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { sync_fails: 3, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let at: Vec<_> = b.syncer.calls().iter().map(|c| c.at).collect();
    assert_eq!(at.len(), 4);
    assert!(at[1] - at[0] < at[2] - at[1] + Duration::from_secs(1));
    assert!(at[3] - at[2] >= Duration::from_secs(4));
    let errors = b.events.events();
    let first = errors.iter().find_map(|e| match e {
        Event::SyncFailed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert_eq!(first.as_deref(), Some("the sync fails as scripted"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_pods_step_is_a_failure_of_that_pod_only() {
    let b = bench();
    b.syncer.script(&uid("bad"), Script { sync_panics: true, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("bad"), None);
    b.workers.update(UpdateKind::Create, pod("good"), None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("good")), Some(Lifecycle::Syncing));
    b.workers.kill_pod(pod("bad"), request()).await.unwrap();
    assert!(b.workers.is_known_terminated(&uid("bad")));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_completes_by_itself_is_freed_and_stays_finished() {
    let b = bench();
    b.syncer.script(&uid("job"), Script { terminal: true, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("job"), None);
    settle().await;
    let none = SyncStep::Terminate { grace: None, status: None };
    let steps = b.syncer.steps(&uid("job"));
    assert_eq!(steps, [SyncStep::Sync(UpdateKind::Create), none, SyncStep::Finish]);
    assert_eq!(b.workers.lifecycle(&uid("job")), Some(Lifecycle::Finished));
    b.workers.update(UpdateKind::Update, pod("job"), None);
    b.workers.resync(&uid("job"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(b.syncer.steps(&uid("job")).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_timestamp_ends_the_pod_with_the_deletions_grace() {
    // Less than its own grace, and more.
    for seconds in [15, 100] {
        let b = bench();
        b.workers.update(UpdateKind::Create, pod("a"), None);
        settle().await;
        let deleted = pod_with("a", "a", |p| {
            let at = "2026-01-01T00:00:00Z".parse().unwrap();
            p.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
            p.metadata.deletion_grace_period_seconds = Some(seconds);
        });
        b.workers.update(UpdateKind::Update, deleted, None);
        settle().await;
        let grace = Some(Duration::from_secs(seconds.unsigned_abs()));
        assert!(b.syncer.steps(&uid("a")).contains(&SyncStep::Terminate { grace, status: None }));
        assert!(b.workers.should_content_be_removed(&uid("a")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_that_had_ended_before_it_was_first_seen_is_freed() {
    let b = bench();
    b.syncer.set_runtime_view(&uid("a"), crate::RuntimeView::Stopped);
    let over = pod_with("a", "a", |p| {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        p.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        p.status.get_or_insert_default().phase = Some("Failed".into());
    });
    b.workers.update(UpdateKind::Create, over, None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    assert_eq!(b.syncer.steps(&uid("a")), [SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn no_task_is_left_when_every_pod_is_idle_or_gone() {
    let b = bench();
    for i in 0..50 {
        b.workers.update(UpdateKind::Create, pod(&format!("p{i}")), None);
    }
    settle().await;
    assert_eq!(b.workers.inner.tasks.len(), 0);
    for i in 0..50 {
        b.workers.kill_pod(pod(&format!("p{i}")), request()).await.unwrap();
    }
    settle().await;
    b.workers.sync_known_pods(&HashSet::new());
    assert_eq!(b.workers.inner.tasks.len(), 0);
    assert!(b.workers.inner.lock().records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_gone_leave_nothing_behind_whether_or_not_the_runtime_is_ever_listed() {
    let b = bench();
    let come_and_go = async || {
        b.workers.update(UpdateKind::Create, pod("a"), None);
        b.workers.kill_pod(pod("a"), request()).await.unwrap();
        settle().await;
        b.workers.sync_known_pods(&HashSet::new());
        let state = b.workers.inner.lock();
        assert!(state.records.is_empty());
        state.gone_since_listing.clone()
    };
    assert_eq!(come_and_go().await, None, "no listing is awaited");
    b.workers.listing_begins();
    b.workers.note_running(RunningPods::default());
    assert_eq!(come_and_go().await, Some(HashSet::from([uid("a")])), "it is under way");
    b.workers.note_running(RunningPods::known(Vec::new()));
    assert_eq!(come_and_go().await, None);
}

#[tokio::test(start_paused = true)]
async fn no_step_is_taken_after_a_shut_down_on_any_request() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b.workers.shut_down().await;
    b.workers.update(UpdateKind::Create, pod("b"), None);
    b.workers.resync(&uid("a"));
    b.workers.request_kill(pod("a"), &request());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(b.syncer.calls().len(), 1);
    assert!(b.workers.kill_pod(pod("a"), request()).await.is_err());
}
