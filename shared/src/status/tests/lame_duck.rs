//! Readiness while the node goes down.

use k8s_openapi::api::core::v1 as api;

use super::{Is, input, pod, runtime};
use crate::status::{StatusInput, StatusStore, generate};
use crate::{GateReason, Pod, PodRuntimeStatus, WallTime};

/// That many seconds after the epoch.
fn at(seconds: i64) -> WallTime {
    WallTime::from_second(seconds).unwrap()
}

/// Publishes the runtime's status of the pod, as the pod workers do.
fn say(store: &StatusStore, pod: &Pod, runtime: &PodRuntimeStatus, now: i64) {
    let previous = store.probed(pod.uid());
    let previous = previous.as_deref();
    let status = generate(StatusInput { previous, now: at(now), ..input(pod, runtime) });
    store.set(pod.clone(), status);
}

fn up() -> PodRuntimeStatus {
    runtime(&[], &[Is::Up])
}

/// A running container whose readiness probe fails.
fn unready() -> PodRuntimeStatus {
    let mut status = up();
    status.containers[0].ready = false;
    status
}

/// Status, reason and the second of the last transition of `Ready`; those of `ContainersReady` are the same.
fn ready(store: &StatusStore, pod: &Pod) -> (bool, String, i64) {
    let status = store.get(pod.uid()).unwrap();
    let told = |name: &str| {
        let all = status.conditions.as_ref().unwrap();
        let condition: &api::PodCondition = all.iter().find(|c| c.type_ == name).unwrap();
        let at = condition.last_transition_time.as_ref().unwrap().0.as_second();
        (condition.status == "True", condition.reason.clone().unwrap_or_default(), at)
    };
    assert_eq!(told("Ready"), told("ContainersReady"));
    told("Ready")
}

fn shut(at: i64) -> (bool, String, i64) {
    (false, "NodeShutdown".into(), at)
}

fn unready_since(at: i64) -> (bool, String, i64) {
    (false, "ContainersNotReady".into(), at)
}

fn ready_since(at: i64) -> (bool, String, i64) {
    (true, String::new(), at)
}

fn one() -> (StatusStore, Pod) {
    (StatusStore::default(), pod(1, "Always", true))
}

#[test]
fn every_ready_pod_turns_not_ready_at_once_and_each_subscriber_learns_it_once() {
    let (store, web) = one();
    say(&store, &web, &up(), 1);
    let before = store.get(web.uid()).unwrap();
    let mut changes = store.changes();
    changes.borrow_and_update();
    store.lame_duck(GateReason::Shutdown, true, at(5));
    assert_eq!(ready(&store, &web), shut(5));
    assert!(changes.has_changed().unwrap());
    let version = *changes.borrow_and_update();
    store.lame_duck(GateReason::Shutdown, true, at(6));
    assert_eq!(*changes.borrow(), version, "it was so already");
    let conditions = store.get(web.uid()).unwrap().conditions.clone().unwrap();
    let words: Vec<_> = conditions.iter().filter_map(|c| c.message.as_deref()).collect();
    assert_eq!(words, ["node is shutting down", "node is shutting down"]);
    let before = before.conditions.as_ref().unwrap();
    let changed = conditions.iter().filter(|c| !before.contains(c)).count();
    assert_eq!(changed, 2, "nothing else changes");
}

#[test]
fn the_same_word_of_the_probes_is_no_change() {
    let (store, web) = one();
    say(&store, &web, &up(), 1);
    store.lame_duck(GateReason::Shutdown, true, at(5));
    let version = *store.changes().borrow();
    say(&store, &web, &up(), 9);
    assert_eq!(*store.changes().borrow(), version);
    assert_eq!(ready(&store, &web), shut(5));
}

#[test]
fn a_pod_that_was_not_ready_stays_as_it_was() {
    let (store, web) = one();
    say(&store, &web, &unready(), 1);
    store.lame_duck(GateReason::Shutdown, true, at(5));
    assert_eq!(ready(&store, &web), unready_since(1));
    store.lame_duck(GateReason::Shutdown, false, at(7));
    assert_eq!(ready(&store, &web), unready_since(1));
}

#[test]
fn a_pod_that_becomes_ready_or_starts_later_is_not_shown_as_ready() {
    let (store, web) = one();
    say(&store, &web, &unready(), 1);
    store.lame_duck(GateReason::Shutdown, true, at(5));
    say(&store, &web, &up(), 6);
    assert_eq!(ready(&store, &web), shut(1), "it was not ready before either");

    let (store, late) = one();
    store.lame_duck(GateReason::Shutdown, true, at(5));
    say(&store, &late, &up(), 8);
    assert_eq!(ready(&store, &late), shut(8));
    store.lame_duck(GateReason::Shutdown, false, at(9));
    assert_eq!(ready(&store, &late), ready_since(9));
}

#[test]
fn when_it_is_called_off_readiness_is_what_the_probes_say() {
    let (store, web) = one();
    say(&store, &web, &up(), 1);
    store.lame_duck(GateReason::Shutdown, true, at(5));
    store.lame_duck(GateReason::Shutdown, false, at(7));
    assert_eq!(ready(&store, &web), ready_since(7));
    say(&store, &web, &up(), 8);
    assert_eq!(ready(&store, &web), ready_since(7));

    store.lame_duck(GateReason::Shutdown, true, at(10));
    say(&store, &web, &unready(), 11);
    assert_eq!(ready(&store, &web), unready_since(10), "shown as not ready since then");
    store.lame_duck(GateReason::Shutdown, false, at(12));
    assert_eq!(ready(&store, &web), unready_since(10));
}

#[test]
fn a_pod_that_ends_meanwhile_is_told_as_ended() {
    let (store, web) = one();
    let job = pod(1, "Never", true);
    say(&store, &web, &up(), 1);
    store.lame_duck(GateReason::Shutdown, true, at(5));
    say(&store, &job, &runtime(&[], &[Is::Done(0)]), 6);
    assert_eq!(ready(&store, &job), (false, "PodCompleted".into(), 5));
    store.lame_duck(GateReason::Shutdown, false, at(7));
    assert_eq!(ready(&store, &job), (false, "PodCompleted".into(), 5));
}

#[test]
fn with_two_reasons_pods_turn_ready_when_the_last_one_is_gone() {
    let (store, web) = one();
    say(&store, &web, &up(), 1);
    store.lame_duck(GateReason::Drain, true, at(5));
    store.lame_duck(GateReason::Shutdown, true, at(6));
    let version = *store.changes().borrow();
    store.lame_duck(GateReason::Shutdown, false, at(7));
    assert_eq!(*store.changes().borrow(), version);
    assert_eq!(ready(&store, &web), shut(5));
    store.lame_duck(GateReason::Drain, false, at(8));
    assert_eq!(ready(&store, &web), ready_since(8));
}
