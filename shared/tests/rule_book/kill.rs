//! The call that terminates a pod and waits for it.

use std::sync::{Arc, Mutex, OnceLock};

use tokio::time::Instant;
use winddown_shared::testing::{FakeSyncer, Script, SyncStep};
use winddown_shared::{
    Event, KillError, Lifecycle, Pod, PodKiller, PodWorkers, Recorder, RunningPods, RuntimeView,
    StatusOverride, UpdateKind,
};

use super::{
    bench, deleted, in_runtime, pod, request, secs, settle, static_pod, stop, uid, with_grace,
};

#[tokio::test(start_paused = true)]
async fn a_pod_never_seen_is_ended_with_the_status_of_the_kill() {
    let b = bench();
    let status = StatusOverride::failed("Evicted", "low on memory", None);
    let kill = with_grace(0).with_status(Some(status.clone()));
    b.workers.kill_pod(pod("a"), kill).await.unwrap();
    settle().await;
    let stop = SyncStep::Terminate { grace: Some(secs(1)), status: Some(status) };
    assert_eq!(b.steps(&pod("a")), [stop, SyncStep::Finish]);
}

/// The deletion is first seen with the kill, by an agent that has just started, or after the end.
#[tokio::test(start_paused = true)]
async fn a_deleted_pod_does_not_stay_on_its_node() {
    let b = bench();
    let status = Some(StatusOverride::staying("NodeReboot", "soon"));
    let kill = request().with_status(status);
    b.workers.kill_pod(deleted("a", 30), kill.clone()).await.unwrap();
    assert!(!b.workers.restarts_on_node(&uid("a")));
    assert_eq!(b.steps(&pod("a"))[0], stop(30), "without the status of a pod that stays");
    b.workers.kill_pod(pod("b"), kill).await.unwrap();
    settle().await;
    assert!(b.workers.restarts_on_node(&uid("b")));
    b.update(&deleted("b", 30));
    assert!(!b.workers.restarts_on_node(&uid("b")));
}

/// Records the state of a pod when its termination is recorded.
#[derive(Default)]
struct Look {
    workers: OnceLock<PodWorkers<FakeSyncer>>,
    seen: Mutex<Vec<Option<Lifecycle>>>,
}

impl Recorder for Look {
    fn record(&self, event: &Event) {
        if let Event::PodStopped { pod, .. } = event {
            let lifecycle = self.workers.get().and_then(|workers| workers.lifecycle(&pod.uid));
            self.seen.lock().unwrap().push(lifecycle);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_is_recorded_before_a_caller_that_waits_for_it_is_answered() {
    let look = Arc::new(Look::default());
    let workers = PodWorkers::new(FakeSyncer::default(), look.clone());
    assert!(look.workers.set(workers.clone()).is_ok());
    workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(*look.seen.lock().unwrap(), [Some(Lifecycle::Terminating)]);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_waits_while_its_containers_are_left_from_before_is_stopped() {
    let b = bench();
    let (old, new) = (static_pod("old", "web"), static_pod("new", "web"));
    b.create(&old);
    b.create(&new);
    settle().await;
    b.syncer.set_runtime_view(new.uid(), RuntimeView::Running);
    b.workers.kill_pod(new.clone(), request()).await.unwrap();
    settle().await;
    assert_eq!(b.steps(&new), [stop(30), SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_the_runtime_knows_can_be_waited_for() {
    let b = bench();
    let stray = pod("stray");
    b.script(&stray, Script { stop_takes: secs(60), ..Script::default() });
    let begun = Instant::now();
    let mut by_runtime = in_runtime(&stray);
    by_runtime.grace = Some(secs(20));
    let kill = request().with_grace(Some(secs(7)));
    let stopped = b.workers.kill_pod(Pod::of_runtime(&by_runtime), kill).await.unwrap();
    assert_eq!(begun.elapsed(), secs(7), "the grace that was asked for");
    assert!(stopped.forced());
    assert_eq!(b.workers.lifecycle(stray.uid()), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_the_runtime_knows_gets_the_grace_that_the_runtime_has_kept() {
    for (kept, asked, gets) in [(Some(20), None, 20), (Some(20), Some(5), 5), (None, None, 30)] {
        let b = bench();
        let stray = pod("stray");
        b.script(&stray, Script { stop_takes: secs(60), ..Script::default() });
        let mut by_runtime = in_runtime(&stray);
        by_runtime.grace = kept.map(secs);
        let kill = request().with_grace(asked.map(secs));
        let begun = Instant::now();
        b.workers.kill_pod(Pod::of_runtime(&by_runtime), kill).await.unwrap();
        assert_eq!(begun.elapsed(), secs(gets), "{kept:?} {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stray_that_is_ending_is_asked_no_longer_grace_than_it_has() {
    let b = bench();
    let stray = pod("stray");
    b.script(&stray, Script { stop_takes: secs(60), ..Script::default() });
    b.workers.kill_runtime_pod(&in_runtime(&stray));
    let begun = Instant::now();
    b.workers.kill_pod(Pod::of_runtime(&in_runtime(&stray)), with_grace(20)).await.unwrap();
    assert_eq!(begun.elapsed(), secs(1));
}

/// A run that terminates groups in order must not take those that have come so far for all.
#[tokio::test(start_paused = true)]
async fn pods_that_come_before_the_runtime_is_listed_are_told_with_its_list() {
    let b = bench();
    let mut more = b.workers.more_known();
    b.create(&pod("wanted"));
    assert!(!more.has_changed().unwrap());
    b.workers.note_running(RunningPods::known(vec![pod("runs")]));
    assert!(more.has_changed().unwrap());
    more.mark_unchanged();
    b.create(&pod("runs"));
    assert!(!more.has_changed().unwrap(), "it was in the list");
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_not_known_before_it_was_reported() {
    let b = bench();
    assert!(!b.workers.running().known, "empty is not the same as unknown");
    let mut more = b.workers.more_known();
    b.workers.note_running(RunningPods::known(Vec::new()));
    assert!(more.has_changed().unwrap() && b.workers.running().is_known_empty());
    more.mark_unchanged();
    b.workers.note_running(RunningPods::known(Vec::new()));
    assert!(!more.has_changed().unwrap(), "nothing more is known");
    b.create(&pod("new"));
    assert!(more.has_changed().unwrap(), "a pod has come");
    more.mark_unchanged();
    b.create(&pod("new"));
    assert!(!more.has_changed().unwrap(), "it was known");
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_no_source_is_listed_until_it_has_ended_and_is_no_choice_for_others() {
    let b = bench();
    let (stray, wanted) = (in_runtime(&pod("stray")), in_runtime(&pod("wanted")));
    let runtime_only = vec![stray.clone(), wanted.clone()];
    b.workers.note_running(RunningPods { runtime_only, known: true, ..RunningPods::default() });
    b.create(&pod("wanted"));
    settle().await;
    let running = b.workers.running();
    assert_eq!((running.pods.len(), running.runtime_only), (1, vec![stray.clone()]));
    assert_eq!(b.workers.non_terminating_pods().len(), 1);
    b.script(&pod("stray"), Script { stop_takes: secs(60), ..Script::default() });
    b.workers.kill_runtime_pod(&stray);
    settle().await;
    assert_eq!(b.workers.running().runtime_only, [stray], "it has not terminated yet");
    tokio::time::sleep(secs(2)).await;
    assert_eq!(b.workers.running().runtime_only, []);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_stray_that_cannot_be_stopped_ends_with_a_typed_error() {
    let b = bench();
    let stray = pod("stray");
    b.script(&stray, Script { stop_fails: 9, ..Script::default() });
    let kill = with_grace(1).with_deadline(Some(Instant::now() + secs(3)));
    let error = b.workers.kill_pod(Pod::of_runtime(&in_runtime(&stray)), kill).await.unwrap_err();
    assert!(matches!(error, KillError::Deadline { waited, .. } if waited == secs(3)), "{error}");
    tokio::time::sleep(secs(200)).await;
    assert_eq!(b.workers.lifecycle(stray.uid()), None, "the kill went on");
}

#[tokio::test(start_paused = true)]
async fn a_real_kill_of_a_stray_waits_for_both() {
    let b = bench();
    let stray = pod("a");
    b.script(&stray, Script { stop_fails: 1, ..Script::default() });
    b.workers.kill_runtime_pod(&in_runtime(&stray));
    settle().await;
    b.workers.kill_pod(stray.clone(), request()).await.unwrap();
    settle().await;
    assert_eq!(b.steps(&stray), [SyncStep::TerminateRuntime, stop(1), SyncStep::Finish]);
    assert_eq!(b.workers.lifecycle(stray.uid()), Some(Lifecycle::Finished));
}

/// How long the caller waits at most: (requested grace, the pod's own being 30 s) to seconds.
#[tokio::test(start_paused = true)]
async fn the_wait_takes_the_grace_and_half_as_much_again_and_ten_seconds_at_least() {
    for (grace, waits) in [(None, 45), (Some(0), 10), (Some(6), 10), (Some(8), 12), (Some(20), 30)]
    {
        let b = bench();
        b.script(&pod("a"), Script { stop_fails: u32::MAX, ..Script::default() });
        let kill = request().with_grace(grace.map(secs));
        let begun = Instant::now();
        let error = b.workers.kill_pod(pod("a"), kill).await.unwrap_err();
        assert!(matches!(error, KillError::Deadline { .. }));
        assert_eq!(begun.elapsed(), secs(waits), "{grace:?}");
        assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminating));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_grace_counts_from_the_stop_or_from_when_it_was_shortened() {
    let b = bench();
    b.script(&pod("a"), Script { stop_takes: secs(1000), ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    let left = || b.workers.snapshot()[0].grace_left.map(|left| left.as_secs_f64().ceil());
    assert_eq!(left(), None, "it is not terminating");
    b.workers.request_kill(pod("a"), &with_grace(600));
    tokio::time::sleep(secs(42)).await;
    assert_eq!(left(), Some(558.0));
    b.workers.request_kill(pod("a"), &with_grace(30));
    assert_eq!(left(), Some(30.0));
    tokio::time::sleep(secs(10)).await;
    assert_eq!(left(), Some(20.0));
}
