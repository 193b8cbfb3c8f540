use std::collections::HashSet;
use std::time::Duration;

use super::{bench, pod, pod_with, request, settle, uid};
use crate::fake::{Script, Step};
use crate::{Event, Lifecycle, PodKiller, RunningPods, RuntimePod, UpdateKind};

#[tokio::test(start_paused = true)]
async fn a_created_pod_is_synced_once_and_then_left_alone() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(b.syncer.steps(&uid("a")), [Step::Sync(UpdateKind::Create)]);
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_synced_again_after_the_resync_interval() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    tokio::time::sleep(Duration::from_secs(91)).await;
    let steps = b.syncer.steps(&uid("a"));
    assert_eq!(steps, [Step::Sync(UpdateKind::Create), Step::Sync(UpdateKind::Sync)]);
}

#[tokio::test(start_paused = true)]
async fn updates_that_come_during_a_sync_are_coalesced_to_the_last() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { sync_takes: Duration::from_secs(1), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    for name in ["one", "two", "three"] {
        b.workers.update(UpdateKind::Update, pod_with("a", name, |_| {}), None);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let names: Vec<_> = b.syncer.calls().iter().map(|c| c.name.to_string()).collect();
    assert_eq!(names, ["a", "three"]);
}

#[tokio::test(start_paused = true)]
async fn different_pods_are_synced_in_parallel() {
    let b = bench();
    for i in 0..20 {
        let name = format!("p{i}");
        let slow = Script { sync_takes: Duration::from_secs(1), ..Script::default() };
        b.syncer.script(&uid(&name), slow);
        b.workers.update(UpdateKind::Create, pod(&name), None);
    }
    settle().await;
    assert_eq!(b.syncer.calls().len(), 20);
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
    let none = Step::Terminate { grace: None, status: None };
    let steps = b.syncer.steps(&uid("job"));
    assert_eq!(steps, [Step::Sync(UpdateKind::Create), none, Step::Finish]);
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
        assert!(b.syncer.steps(&uid("a")).contains(&Step::Terminate { grace, status: None }));
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
    assert_eq!(b.syncer.steps(&uid("a")), [Step::Finish]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_left_the_desired_set_is_ended_and_then_forgotten() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b.workers.sync_known_pods(&HashSet::new());
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    b.workers.sync_known_pods(&HashSet::new());
    assert_eq!(b.workers.lifecycle(&uid("a")), None);
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_pod_cancels_the_sync_that_is_under_way() {
    let b = bench();
    let slow = Script { sync_takes: Duration::from_secs(600), ..Script::default() };
    b.syncer.script(&uid("a"), slow);
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b.workers.sync_known_pods(&HashSet::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_uid_created_again_while_ending_is_known_anew_once_it_is_finished() {
    let b = bench();
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    b.workers.request_kill(pod("a"), &request());
    b.workers.update(UpdateKind::Create, pod_with("a", "second", |_| {}), None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
    let desired = HashSet::from([uid("a")]);
    assert!(b.workers.sync_known_pods(&desired).is_empty());
    b.workers.update(UpdateKind::Create, pod_with("a", "second", |_| {}), None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Syncing));
}

#[tokio::test(start_paused = true)]
async fn a_pod_only_the_runtime_knows_is_stopped_and_leaves_no_record() {
    let b = bench();
    b.workers.kill_runtime_pod(runtime_pod("stray"));
    settle().await;
    assert_eq!(b.syncer.steps(&uid("stray")), [Step::TerminateRuntime]);
    assert_eq!(b.workers.lifecycle(&uid("stray")), None);
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_stray_that_fails_is_tried_until_it_is_gone() {
    let b = bench();
    b.syncer.script(&uid("stray"), Script { stop_fails: 5, ..Script::default() });
    b.workers.kill_runtime_pod(runtime_pod("stray"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(b.syncer.steps(&uid("stray")).len(), 6);
    assert_eq!(b.workers.lifecycle(&uid("stray")), None);
}

#[tokio::test(start_paused = true)]
async fn unknown_uids_are_kept_until_the_desired_set_was_seen_once() {
    let b = bench();
    let who = uid("unknown");
    assert!(b.workers.could_have_running_containers(&who));
    assert!(!b.workers.should_runtime_be_removed(&who));
    b.workers.sync_known_pods(&HashSet::new());
    assert!(!b.workers.could_have_running_containers(&who));
    assert!(b.workers.should_runtime_be_removed(&who));
    assert!(!b.workers.is_termination_requested(&who));
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

fn runtime_pod(name: &str) -> RuntimePod {
    RuntimePod {
        uid: uid(name),
        name: name.into(),
        namespace: "default".into(),
        running: true,
        grace: None,
    }
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
