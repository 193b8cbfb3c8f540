use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{PodWorkers, bench, pod, pod_with, request, settle, uid, with_grace};
use crate::testing::{FakeSyncer, Script, SyncStep};
use crate::{
    Event, Lifecycle, Pod, PodKiller, PodRef, Recorder, RunningPods, RuntimePod, StopChange,
    UpdateKind, WorkerObserver,
};

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
    assert_eq!(b.workers.inner.tasks.receiver_count(), 0);
    for i in 0..50 {
        b.workers.kill_pod(pod(&format!("p{i}")), request()).await.unwrap();
    }
    settle().await;
    b.workers.sync_known_pods(&HashSet::new());
    assert_eq!(b.workers.inner.tasks.receiver_count(), 0);
    assert!(b.workers.inner.state.lock().records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_gone_leave_nothing_behind_whether_or_not_the_runtime_is_ever_listed() {
    let b = bench();
    let come_and_go = async || {
        b.workers.update(UpdateKind::Create, pod("a"), None);
        b.workers.kill_pod(pod("a"), request()).await.unwrap();
        settle().await;
        b.workers.sync_known_pods(&HashSet::new());
        let state = b.workers.inner.state.lock();
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
async fn what_a_listing_shows_to_have_ended_is_an_end() {
    let b = bench();
    let mut ends = b.workers.ends();
    let mut left = RuntimePod::of(&pod("b"), true);
    let mut list = |pods, runtime_only, known| {
        b.workers.note_running(RunningPods { pods, runtime_only, known });
        let is_told = ends.has_changed().unwrap();
        ends.mark_unchanged();
        is_told
    };
    list(vec![pod("a")], Vec::new(), false);
    assert!(list(vec![pod("a")], vec![left.clone()], true), "what does not run is known");
    assert!(!list(vec![pod("a")], vec![left.clone()], true), "nothing is new");
    assert!(list(Vec::new(), vec![left.clone()], true), "a pod of a source has ended");
    left.running = false;
    assert!(list(Vec::new(), vec![left], true), "its containers have ended");
    assert!(list(Vec::new(), Vec::new(), true), "it is gone");
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

/// Panics whenever it is called, as code of an embedder may.
struct Broken;

impl Recorder for Broken {
    #[allow(clippy::panic, reason = "to see that it is contained")]
    fn record(&self, _: &Event) {
        panic!("recorder");
    }
}

impl WorkerObserver for Broken {
    #[allow(clippy::panic, reason = "to see that it is contained")]
    fn pod_started(&self, _: &Pod, _: Duration) {
        panic!("observer of starts");
    }

    #[allow(clippy::panic, reason = "to see that it is contained")]
    fn step_ended(&self, _: &'static str, _: Duration) {
        panic!("observer of steps");
    }

    #[allow(clippy::panic, reason = "to see that it is contained")]
    fn stop_changed(&self, _: &PodRef, _: &StopChange) {
        panic!("observer of changes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_lives_and_terminates_whatever_its_observers_do() {
    let (syncer, broken) = (FakeSyncer::default(), Arc::new(Broken));
    let resync = Duration::from_secs(60);
    let workers = PodWorkers::with_observer(syncer.clone(), broken.clone(), resync, broken);
    let slow = Script { stop_takes: Duration::from_secs(9), ..Script::default() };
    syncer.script(&uid("a"), slow);
    workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    assert_eq!(syncer.steps(&uid("a")), [SyncStep::Sync(UpdateKind::Create)]);
    workers.request_kill(pod("a"), &with_grace(30));
    settle().await;
    workers.kill_pod(pod("a"), with_grace(20)).await.unwrap();
    settle().await;
    assert_eq!(workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}
