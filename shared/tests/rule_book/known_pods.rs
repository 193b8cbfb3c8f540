//! Compares the tracked pods with the desired ones.

use std::collections::HashSet;

use winddown_shared::testing::{Script, SyncStep};
use winddown_shared::{Lifecycle, Pod, UpdateKind};

use super::{
    bench, deleted, evict, in_runtime, pod, secs, settle, static_pod, stop, sync, uid, uids,
};

#[tokio::test(start_paused = true)]
async fn twenty_pods_are_ended_forgotten_and_never_started_again_by_accident() {
    let b = bench();
    let unknown = uid("abc");
    let pods: Vec<Pod> = (0..20).map(|i| pod(&i.to_string())).collect();
    for pod in &pods {
        b.create(pod);
    }
    settle().await;
    for (i, pod) in pods.iter().enumerate().filter(|(i, _)| ![2, 14].contains(i)) {
        if i % 2 == 0 {
            b.update(&deleted(pod.uid().as_str(), 30));
        } else {
            b.kill(pod);
        }
    }
    settle().await;
    let w = &b.workers;
    for (i, pod) in pods.iter().enumerate().take(2) {
        let uid = pod.uid();
        assert!(w.is_termination_requested(uid) && w.is_known_terminated(uid));
        assert_eq!(w.should_content_be_removed(uid), i == 0, "only one was deleted");
    }
    let runs = pods[2].uid();
    assert!(!w.is_termination_requested(runs) && !w.should_content_be_removed(runs));
    assert_eq!((w.runs(runs), w.runs(&unknown)), (Some(true), None));
    assert!(!w.should_content_be_removed(&unknown));

    let known = w.sync_known_pods(&uids(&[&pods[2], &pods[14]]));
    assert_eq!(known.len(), 2);
    assert!(w.should_content_be_removed(&unknown));

    // A pod that is no longer desired is driven to its end without a kill.
    assert_eq!(w.sync_known_pods(&HashSet::new()).len(), 2);
    settle().await;
    for i in [2, 14] {
        assert_eq!(w.lifecycle(pods[i].uid()), Some(Lifecycle::Finished));
        b.kill(&pods[i]);
        settle().await;
        assert_eq!(b.steps(&pods[i]), [sync(UpdateKind::Create), stop(30), SyncStep::Finish]);
    }
    assert!(w.sync_known_pods(&HashSet::new()).is_empty());
    assert!(w.snapshot().is_empty());
}

/// (how the record came about, desired, forgotten at once)
#[tokio::test(start_paused = true)]
async fn a_record_is_forgotten_when_it_is_finished_or_never_ran() {
    type Make = fn(&super::Bench, &Pod);
    let finished: Make = |b, p| b.kill(p);
    let queued: Make = |b, p| b.create(p);
    let fails = |b: &super::Bench, p: &Pod, stop: u32, finish: u32| {
        b.script(p, Script { stop_fails: stop, finish_fails: finish, ..Script::default() });
    };
    // Finished, restart requested.
    for desired in [true, false] {
        let b = bench();
        let p = pod("a");
        finished(&b, &p);
        settle().await;
        b.create(&p);
        let set = if desired { uids(&[&p]) } else { HashSet::new() };
        assert!(b.workers.sync_known_pods(&set).is_empty(), "finished");
    }
    // Waiting behind another pod, and not yet started.
    for held in [true, false] {
        let b = bench();
        let (first, p) = (static_pod("first", "web"), static_pod("a", "web"));
        if held {
            b.create(&first);
        }
        queued(&b, &p);
        assert!(b.workers.sync_known_pods(&uids(&[&first, &p])).contains_key(p.uid()));
        assert!(!b.workers.sync_known_pods(&uids(&[&first])).contains_key(p.uid()));
        settle().await;
        assert!(b.steps(&p).is_empty());
    }
    // Started, terminating, terminated.
    for (stop_fails, finish_fails, lifecycle) in
        [(9, 0, Lifecycle::Terminating), (0, 9, Lifecycle::Terminated)]
    {
        let b = bench();
        let p = pod("a");
        fails(&b, &p, stop_fails, finish_fails);
        b.create(&p);
        settle().await;
        assert!(b.workers.sync_known_pods(&HashSet::new()).contains_key(p.uid()));
        settle().await;
        assert_eq!(b.workers.lifecycle(p.uid()), Some(lifecycle));
        assert!(b.workers.sync_known_pods(&HashSet::new()).contains_key(p.uid()));
        tokio::time::sleep(secs(200)).await;
        assert_eq!(b.workers.lifecycle(p.uid()), Some(Lifecycle::Finished));
        assert!(b.workers.sync_known_pods(&HashSet::new()).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_that_is_still_desired_stays_known_and_keeps_its_uid_from_starting() {
    let b = bench();
    b.workers.request_kill(pod("a"), &evict());
    settle().await;
    let steps = b.steps(&pod("a"));
    for _ in 0..3 {
        let known = b.workers.sync_known_pods(&uids(&[&pod("a")]));
        assert_eq!(known[&uid("a")], Lifecycle::Finished);
        b.update(&pod("a"));
        settle().await;
    }
    assert_eq!(b.steps(&pod("a")), steps);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_started_but_is_in_the_runtime_is_stopped_and_not_just_forgotten() {
    let b = bench();
    let (first, held) = (static_pod("first", "web"), static_pod("held", "web"));
    b.create(&first);
    b.create(&held);
    settle().await;
    b.workers.kill_runtime_pod(&in_runtime(&held));
    assert!(b.workers.sync_known_pods(&uids(&[&first])).contains_key(held.uid()));
    settle().await;
    assert_eq!(b.steps(&held), [stop(1), SyncStep::Finish]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_cannot_be_stopped_is_retried_on_its_own_time_until_it_is_gone() {
    let b = bench();
    b.script(&pod("a"), Script { stop_fails: 6, ..Script::default() });
    b.create(&pod("a"));
    settle().await;
    for _ in 0..100 {
        b.workers.sync_known_pods(&HashSet::new());
        tokio::time::sleep(secs(1) / 2).await;
    }
    assert_eq!(b.workers.lifecycle(&uid("a")), None);
    let stops = b.steps(&pod("a")).into_iter().filter(|s| *s == stop(30)).count();
    assert_eq!(stops, 7, "looking a hundred times did not take the back-off away");
}
