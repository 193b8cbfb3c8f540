use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::{Bench, bench, pod, pod_with, request, settle, uid, with_grace};
use crate::testing::{FakeRecorder, Script, SyncCall, SyncStep};
use crate::workers::grace::effective;
use crate::{
    Event, KillError, KillReason, KillRequest, Lifecycle, Pod, PodKiller, PodStateProvider,
    RuntimePod, StatusOverride, UpdateKind,
};

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
    assert_eq!(b.workers.runs(&uid("a")), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_grace_is_shortened_late_counts_as_leaving_and_not_as_stuck() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(7200), ..Script::default() });
    b.workers.request_kill(pod("a"), &with_grace(3600));
    tokio::time::sleep(secs(100)).await;
    b.workers.request_kill(pod("a"), &with_grace(20));
    let occupants = b.workers.places();
    assert_eq!((occupants.leaving.len(), occupants.stuck.len()), (1, 0));
    tokio::time::sleep(secs(21)).await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_that_would_end_later_changes_nothing() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_fails: 8, ..Script::default() });
    b.workers.request_kill(pod("a"), &with_grace(30));
    tokio::time::sleep(secs(25)).await;
    b.workers.request_kill(pod("a"), &with_grace(20));
    assert_eq!(b.workers.grace_left(&uid("a")), Some(secs(5)));
    tokio::time::sleep(secs(21)).await;
    // 45 s after the request, as if there had been no other.
    assert_eq!(b.workers.places().stuck.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_asks_after_the_end_is_told_how_the_pod_was_stopped() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(20), ..Script::default() });
    let first = b.workers.kill_pod(pod("a"), with_grace(5)).await.unwrap();
    assert!(first.forced());
    let again = b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(again, first);
}

#[tokio::test(start_paused = true)]
async fn a_kill_of_a_pod_that_exited_and_is_still_cleaned_up_tells_how_it_was_stopped() {
    let b = bench();
    b.syncer.script(&uid("a"), Script { finish_fails: 8, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    let stopped = b.workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminated));
    let left = Pod::of_runtime(&RuntimePod::of(&pod("a"), true));
    assert_eq!(b.workers.kill_pod(left, request()).await.unwrap(), stopped);
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
    let (pod, waited, still_running) = ("a".into(), Duration::new(11, 721_189), Vec::new());
    let unseen = KillError::Deadline { pod, waited, still_running };
    assert_eq!(unseen.to_string(), "pod a still runs after 11s");
    assert!(b.events.events().iter().any(|e| matches!(e, Event::ExceededGracePeriod { .. })));
    tokio::time::sleep(secs(120)).await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Finished));
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_the_runtime_refuses_is_told_why_and_leaves_the_pod_running() {
    let b = bench();
    let (stops_at_shutdown_only, stop_takes) = (true, secs(300));
    b.syncer.script(&uid("a"), Script { stops_at_shutdown_only, stop_takes, ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let error = b.workers.kill_pod(pod("a"), with_grace(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "pod default/a is left as it is: refused as scripted");
    b.workers.begin_kill(pod("a"), with_grace(1));
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Syncing));
    assert!(!b.events.events().iter().any(|e| matches!(e, Event::KillRequested { .. })));

    let shutdown = KillRequest { reason: KillReason::Shutdown, ..with_grace(20) };
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), shutdown).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 20, "its grace is not that of a refused kill");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_fails_and_is_refused_by_then_is_given_up_and_the_pod_may_begin_another_run() {
    let b = bench();
    let failing = Script { stop_fails: 9, ..Script::default() };
    b.syncer.script(&uid("a"), failing.clone());
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    let killing = tokio::spawn({
        let workers = b.workers.clone();
        async move { workers.kill_pod(pod("a"), with_grace(60)).await }
    });
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Terminating));
    b.syncer.script(&uid("a"), Script { stops_at_shutdown_only: true, ..failing });
    let error = killing.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "pod default/a is left as it is: refused as scripted");
    b.workers.settled().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), None);

    b.syncer.script(&uid("a"), Script { stop_takes: secs(300), ..Script::default() });
    b.workers.update(UpdateKind::Create, pod("a"), None);
    settle().await;
    assert_eq!(b.workers.lifecycle(&uid("a")), Some(Lifecycle::Syncing));
    let begun = Instant::now();
    b.workers.kill_pod(pod("a"), with_grace(100)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 100, "its grace is not that of the first kill");
}

/// Stops that fail count: the end of the grace period is a point in time, after which a container is killed at once.
#[tokio::test(start_paused = true)]
async fn a_stop_that_is_tried_again_ends_when_that_was_promised() {
    let attempts = |b: &Bench| {
        let calls = b.syncer.calls().into_iter();
        let stop = |call: &SyncCall| {
            matches!(call.step, SyncStep::Terminate { .. } | SyncStep::TerminateRuntime)
        };
        calls.filter(stop).map(|call| call.at).collect::<Vec<_>>()
    };
    for (stop_fails, grace) in (0..12).flat_map(|fails| [1, 3, 60].map(|grace| (fails, grace))) {
        let b = bench();
        let script = Script { stop_fails, stop_takes: secs(900), ..Script::default() };
        b.syncer.script(&uid("a"), script.clone());
        b.workers.update(UpdateKind::Create, pod("a"), None);
        settle().await;
        let begun = Instant::now();
        let kill = KillRequest { deadline: Some(begun + secs(9000)), ..with_grace(grace) };
        b.workers.kill_pod(pod("a"), kill).await.unwrap();
        let last = attempts(&b).pop().unwrap();
        let promised = (begun + secs(grace)).max(last);
        assert_eq!(promised.elapsed(), Duration::ZERO, "{stop_fails} of {grace} s");

        // What is left of it is found later, and has a second.
        settle().await;
        b.syncer.script(&uid("a"), script);
        let begun = Instant::now();
        b.workers.kill_runtime_pod(&RuntimePod {
            uid: uid("a"),
            name: "a".into(),
            namespace: "default".into(),
            running: true,
            grace: None,
            requests: None,
            spec_mark: None,
        });
        while b.workers.runs(&uid("a")) == Some(true) {
            settle().await;
        }
        let promised = (begun + secs(1)).max(attempts(&b).pop().unwrap());
        assert!(promised.elapsed() <= Duration::from_millis(1), "{stop_fails}: {promised:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_ends_that_were_promised_the_earlier_one_counts() {
    for ends in [[60, 20], [20, 60]] {
        let b = bench();
        b.syncer.script(&uid("a"), Script { stop_takes: secs(900), ..Script::default() });
        let begun = Instant::now();
        for end in ends {
            let kill = with_grace(300).with_until(begun + secs(end));
            b.workers.request_kill(pod("a"), &kill);
            settle().await;
        }
        b.workers.kill_pod(pod("a"), with_grace(300)).await.unwrap();
        assert_eq!(begun.elapsed(), secs(20), "{ends:?}");
    }
}

/// Whether its node waits for the pod in the stop in flight, in one that is tried again, and in that of the next agent.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_before_its_node_shuts_down_is_waited_for_from_then_on() {
    let deleted = || {
        pod_with("a", "a", |p| {
            p.metadata.deletion_grace_period_seconds = Some(60);
            p.metadata.deletion_timestamp = Some(Time(crate::WallTime::UNIX_EPOCH));
        })
    };
    for stop_fails in [0, 3] {
        let b = bench();
        b.syncer
            .script(&uid("a"), Script { stop_fails, stop_takes: secs(50), ..Script::default() });
        b.workers.update(UpdateKind::Create, deleted(), None);
        settle().await;
        let waits = || b.syncer.grace_of_stop(&uid("a")).unwrap().node_waits();
        assert!(!waits(), "nothing waits for a deleted pod");
        b.workers.request_kill(
            deleted(),
            &KillRequest { reason: KillReason::Shutdown, ..with_grace(60) },
        );
        settle().await;
        tokio::time::sleep(secs(20)).await;
        assert!(waits(), "{stop_fails}");
    }
    let b = bench();
    b.syncer.script(&uid("a"), Script { stop_takes: secs(50), ..Script::default() });
    let mut earlier = crate::EarlierKill::new(request(), secs(60));
    earlier.node_waits = true;
    b.workers.resume_kill(pod("a"), &earlier.request_at(Duration::ZERO));
    settle().await;
    assert!(b.syncer.grace_of_stop(&uid("a")).unwrap().node_waits());
}

#[tokio::test(start_paused = true)]
async fn the_stop_in_flight_of_a_pod_in_no_source_learns_of_a_shutdown() {
    let b = bench();
    let stray = RuntimePod::of(&pod("a"), true);
    b.syncer.script(&stray.uid, Script { stop_takes: secs(50), ..Script::default() });
    b.workers.kill_runtime_pod(&stray);
    settle().await;
    let grace = b.syncer.grace_of_stop(&stray.uid).unwrap();
    assert!(!grace.node_waits() && grace.remaining() > secs(20));
    let request = KillRequest { reason: KillReason::Shutdown, ..with_grace(5) };
    b.workers.request_kill(Pod::of_runtime(&stray), &request);
    assert!(grace.node_waits() && grace.remaining() <= secs(5));
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

/// Notes the order, and takes its time as a write to a file may.
#[derive(Clone, Default)]
struct SlowRecorder(std::sync::Arc<std::sync::Mutex<Vec<&'static str>>>);

impl crate::Recorder for SlowRecorder {
    #[allow(clippy::disallowed_methods, reason = "a write blocks its thread as well")]
    fn record(&self, event: &Event) {
        let what = match event {
            Event::KillRequested { .. } => {
                std::thread::sleep(Duration::from_millis(300));
                "requested"
            }
            Event::PodStopped { .. } => "stopped",
            _ => return,
        };
        self.0.lock().unwrap().push(what);
    }
}

/// What keeps the requests for the next agent hears of the request before the pod is asked: also if a sync is in progress,
/// and if it ends meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_recorded_before_the_pod_is_asked_also_in_the_middle_of_a_sync() {
    for sync_takes in [secs(60), Duration::from_millis(200)] {
        let (syncer, recorder) = (crate::testing::FakeSyncer::default(), SlowRecorder::default());
        let workers = super::PodWorkers::new(syncer.clone(), std::sync::Arc::new(recorder.clone()));
        syncer.script(&uid("a"), Script { sync_takes, ..Script::default() });
        workers.update(UpdateKind::Create, pod("a"), None);
        while syncer.steps(&uid("a")).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(syncer.steps(&uid("a")), [SyncStep::Sync(UpdateKind::Create)]);
        workers.kill_pod(pod("a"), request()).await.unwrap();
        assert_eq!(*recorder.0.lock().unwrap(), ["requested", "stopped"], "{sync_takes:?}");
    }
}

/// Reads what the stop in flight has when a request is recorded that leaves it less.
struct Look(crate::testing::FakeSyncer, std::sync::Mutex<Vec<(Duration, bool, Option<String>)>>);

impl crate::WorkerObserver for Look {
    fn stop_changed(&self, pod: &crate::PodRef, change: &crate::StopChange) {
        let grace = self.0.grace_of_stop(&pod.uid).unwrap();
        let reason = change.status.as_ref().map(|status| status.reason.to_string());
        self.1.lock().unwrap().push((grace.remaining(), grace.node_waits(), reason));
    }
}

/// An agent that is killed in between leaves a stop that the next one goes on with as it is recorded.
#[tokio::test(start_paused = true)]
async fn a_stop_is_left_less_time_once_that_is_recorded() {
    let (syncer, events) = (crate::testing::FakeSyncer::default(), FakeRecorder::default());
    let look = std::sync::Arc::new(Look(syncer.clone(), std::sync::Mutex::default()));
    let (events, resync) = (std::sync::Arc::new(events), secs(60));
    let workers = super::PodWorkers::with_observer(syncer.clone(), events, resync, look.clone());
    syncer.script(&uid("a"), Script { stop_takes: secs(900), ..Script::default() });
    let begun = Instant::now();
    workers.request_kill(pod("a"), &with_grace(60));
    settle().await;
    for (reason, grace) in [(KillReason::Operator, 40), (KillReason::Shutdown, 20)] {
        workers.request_kill(pod("a"), &KillRequest { reason, ..with_grace(grace) });
    }
    let left = |seconds| begun + secs(seconds) - Instant::now();
    let in_flight = syncer.grace_of_stop(&uid("a")).unwrap();
    assert_eq!((in_flight.remaining(), in_flight.node_waits()), (secs(20), true));
    let news = [(left(60), false, None), (secs(40), false, None)];
    assert_eq!(*look.1.lock().unwrap(), news);
    workers.kill_pod(pod("a"), request()).await.unwrap();
    assert_eq!(begun.elapsed(), secs(20) + Duration::from_millis(1));
}

/// A pod that was preempted is evicted for a shortage while it terminates, which is what its status says in the end.
#[tokio::test(start_paused = true)]
async fn a_status_that_replaces_another_and_an_eviction_are_recorded_once() {
    let (syncer, events) = (crate::testing::FakeSyncer::default(), FakeRecorder::default());
    let look = std::sync::Arc::new(Look(syncer.clone(), std::sync::Mutex::default()));
    let (events, resync) = (std::sync::Arc::new(events), secs(60));
    let workers = super::PodWorkers::with_observer(syncer.clone(), events, resync, look.clone());
    syncer.script(&uid("a"), Script { stop_takes: secs(5), ..Script::default() });
    let request = |reason, text: &str| {
        let status = StatusOverride::failed(text, "", None);
        KillRequest { reason, ..with_grace(30) }.with_status(status)
    };
    workers.request_kill(pod("a"), &request(KillReason::Preemption, "Preempting"));
    settle().await;
    for _ in 0..2 {
        workers.request_kill(pod("a"), &request(KillReason::Eviction, "Evicted"));
    }
    for _ in 0..2 {
        workers.request_kill(pod("a"), &with_grace(30).with_evict(true));
    }
    let told: Vec<_> = look.1.lock().unwrap().iter().map(|(.., reason)| reason.clone()).collect();
    assert_eq!(told, [Some("Evicted".to_owned()), None]);
}
