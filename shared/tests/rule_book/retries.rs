//! When a step is retried, and what is reported about its duration.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::testing::{FakeRecorder, FakeSyncer, Script, SyncStep};
use winddown_shared::{
    Event, Grace, NodeEndListener, Pod, PodStopped, PodSyncer, PodWorkers, Retry, RuntimePod,
    RuntimeStateProvider, Stop, SyncError, SyncUpdate, Synced, UpdateKind, WorkerObserver,
};

use super::{bench, deleted, pod, secs, settle, stop, uid};

/// Returns the same result from every sync, and records when it was called.
#[derive(Clone)]
struct Answers(Arc<Mutex<Vec<Instant>>>, Result<Synced, SyncError>);

impl PodSyncer for Answers {
    async fn sync_pod(&self, _: SyncUpdate) -> Result<Synced, SyncError> {
        self.0.lock().unwrap().push(Instant::now());
        self.1.clone()
    }

    async fn sync_terminating_pod(&self, _: Pod, _: Stop) -> Result<PodStopped, SyncError> {
        Ok(PodStopped::default())
    }

    async fn sync_terminating_runtime_pod(
        &self,
        _: RuntimePod,
        _: Grace,
    ) -> Result<PodStopped, SyncError> {
        Ok(PodStopped::default())
    }

    async fn sync_terminated_pod(&self, _: Pod) -> Result<(), SyncError> {
        Ok(())
    }
}

impl RuntimeStateProvider for Answers {}

impl NodeEndListener for Answers {}

/// The delay between the first call and the second.
async fn wait_after(answer: Result<Synced, SyncError>) -> Duration {
    let syncer = Answers(Arc::default(), answer);
    let recorder = Arc::new(FakeRecorder::default());
    let workers = PodWorkers::new(syncer.clone(), recorder);
    workers.update(UpdateKind::Create, pod("a"), None);
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let [first, second, ..] = syncer.0.lock().unwrap()[..] {
            return second - first;
        }
    }
}

/// The result of the step, the shortest delay, and whether up to half as much again is added.
#[tokio::test(start_paused = true)]
async fn the_next_look_comes_when_the_answer_says() {
    let again = |seconds| Synced { again_in: Some(secs(seconds)), ..Synced::default() };
    let failed = |retry| Err(SyncError::new("no").retry(retry));
    let rows = [
        (Ok(Synced::default()), 60, true),
        (Ok(again(5)), 5, false),
        (Ok(again(0)), 0, false),
        (failed(Retry::STEP), 1, true),
        (failed(Retry::TRANSIENT), 1, true),
        (failed(Retry::LISTING), 10, false),
    ];
    for (i, (answer, least, jittered)) in rows.into_iter().enumerate() {
        let waited = wait_after(answer).await;
        let least = secs(least);
        let most = if jittered { least * 3 / 2 } else { least };
        // The test polls every ten milliseconds.
        let most = most + Duration::from_millis(20);
        assert!((least..=most).contains(&waited), "row {i}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_doubles_up_to_its_most_and_starts_over_after_a_success() {
    let b = bench();
    b.script(&pod("a"), Script { sync_fails: 7, ..Script::default() });
    b.create(&pod("a"));
    tokio::time::sleep(secs(75)).await;
    let at: Vec<_> = b.syncer.calls().iter().map(|c| c.at).collect();
    let told = |event: &Event| matches!(event, Event::SyncFailed { error, .. } if error == "the sync fails as scripted");
    assert_eq!(b.events.events().iter().filter(|event| told(event)).count(), 7);
    let waits: Vec<_> = at.windows(2).map(|w| w[1] - w[0]).collect();
    for (wait, least) in waits.iter().zip([1, 2, 4, 8, 10, 10, 10]) {
        let most = secs(least) * 3 / 2 + Duration::from_millis(2);
        assert!((secs(least)..=most).contains(wait), "{waits:?}");
    }
    b.script(&pod("a"), Script { sync_fails: 1, ..Script::default() });
    b.update(&pod("a"));
    settle().await;
    let failed = b.syncer.calls().len();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(b.syncer.calls().len(), failed + 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_fails_is_retried_after_1_2_4_8_and_then_10_seconds_with_jitter() {
    let b = bench();
    b.script(&pod("a"), Script { stop_fails: 6, ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    b.kill(&pod("a"));
    tokio::time::sleep(secs(75)).await;
    let calls = b.syncer.calls();
    let stops = calls.iter().filter(|call| matches!(call.step, SyncStep::Terminate { .. }));
    let at: Vec<_> = stops.map(|call| call.at).collect();
    let waits: Vec<_> = at.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(waits.len(), 6, "{waits:?}");
    for (wait, least) in waits.iter().zip([1, 2, 4, 8, 10, 10]) {
        let most = secs(least) * 3 / 2 + Duration::from_millis(2);
        assert!((secs(least)..=most).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_failed_together_do_not_return_together() {
    let b = bench();
    for i in 0..50 {
        let pod = pod(&format!("p{i}"));
        b.script(&pod, Script { sync_fails: 1, ..Script::default() });
        b.create(&pod);
    }
    tokio::time::sleep(secs(5)).await;
    let mut at: Vec<_> = b.syncer.calls().iter().skip(50).map(|c| c.at).collect();
    at.sort();
    at.dedup();
    assert!(at.len() > 25, "{}", at.len());
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_nothing_pending_rests_and_one_with_an_update_goes_on_at_once() {
    let b = bench();
    b.script(&pod("a"), Script { sync_takes: secs(1), ..Script::default() });
    b.create(&pod("a"));
    tokio::time::sleep(secs(30)).await;
    assert_eq!(b.steps(&pod("a")).len(), 1);
    b.update(&pod("a"));
    settle().await;
    b.update(&pod("a"));
    tokio::time::sleep(secs(3)).await;
    let at: Vec<_> = b.syncer.calls().iter().map(|c| c.at).collect();
    assert_eq!(at.len(), 3);
    assert_eq!(at[2] - at[1], secs(1), "the moment the step before it ended");
}

#[tokio::test(start_paused = true)]
async fn a_phase_that_is_over_is_followed_by_the_next_one_at_once_and_by_nothing_else() {
    let b = bench();
    b.script(&pod("a"), Script { terminal: true, ..Script::default() });
    b.create(&pod("a"));
    tokio::time::sleep(secs(600)).await;
    let calls = b.syncer.calls();
    let none = SyncStep::Terminate { grace: None, status: None };
    let steps: Vec<_> = calls.iter().map(|c| c.step.clone()).collect();
    assert_eq!(steps, [SyncStep::Sync(UpdateKind::Create), none, SyncStep::Finish]);
    assert_eq!(calls[2].at, calls[0].at);
    let by_itself = |event: &Event| matches!(event, Event::PodStopped { by: None, .. });
    assert!(b.events.events().iter().any(by_itself), "nobody asked it to");
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_fails_as_its_pod_is_killed_does_not_delay_the_stops_retry() {
    let b = bench();
    b.script(&pod("a"), Script { sync_fails: 5, stop_fails: 1, ..Script::default() });
    b.create(&pod("a"));
    tokio::time::sleep(secs(20)).await;
    b.kill(&pod("a"));
    tokio::time::sleep(secs(2)).await;
    let steps = b.steps(&pod("a"));
    assert!(steps.ends_with(&[stop(30), stop(30), SyncStep::Finish]), "{steps:?}");
    let events = b.events.events();
    let of_stop = |event: &Event| match event {
        Event::SyncFailed { of_stop, .. } => Some(*of_stop),
        _ => None,
    };
    let mut failed = events.iter().filter_map(of_stop);
    assert!(failed.next_back() == Some(true) && failed.all(|of_stop| !of_stop));
}

#[derive(Default)]
struct Observed(Mutex<Vec<(String, Duration)>>);

impl WorkerObserver for Observed {
    fn pod_started(&self, pod: &Pod, waited: Duration) {
        self.0.lock().unwrap().push((format!("started {}", pod.name()), waited));
    }

    fn step_ended(&self, operation: &'static str, took: Duration) {
        self.0.lock().unwrap().push((operation.to_owned(), took));
    }
}

#[tokio::test(start_paused = true)]
async fn durations_count_from_the_first_of_the_updates_that_a_step_answers() {
    let (syncer, observed) = (FakeSyncer::default(), Arc::new(Observed::default()));
    let workers = PodWorkers::with_observer(
        syncer.clone(),
        Arc::new(FakeRecorder::default()),
        Duration::from_secs(60),
        observed.clone(),
    );
    syncer.script(&uid("a"), Script { sync_takes: secs(4), ..Script::default() });
    workers.update(UpdateKind::Create, pod("a"), None);
    for _ in 0..2 {
        tokio::time::sleep(secs(1)).await;
        workers.update(UpdateKind::Update, pod("a"), None);
    }
    // The create is over after 4 s, the update after 8 s; its first cause came after 1 s.
    tokio::time::sleep(secs(10)).await;
    let seen = |text: &str, seconds| (text.to_owned(), secs(seconds));
    let expected = [seen("started a", 0), seen("create", 4), seen("update", 7)];
    assert_eq!(observed.0.lock().unwrap()[..], expected);
    let (stop_takes, finish_takes) = (secs(3), secs(2));
    syncer.script(&uid("a"), Script { stop_takes, finish_takes, ..Script::default() });
    for _ in 0..2 {
        workers.update(UpdateKind::Update, deleted("a", 5), None);
        tokio::time::sleep(secs(1)).await;
    }
    tokio::time::sleep(secs(10)).await;
    let expected = [seen("update", 3), seen("terminated", 4)];
    assert_eq!(observed.0.lock().unwrap()[3..], expected);
}
