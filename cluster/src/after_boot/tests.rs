//! Which pods are removed, and what is remembered of them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;
use winddown_shared::{Event, KillReason, PodRef, PodUid, Recorder, WallClock, WallTime};

use super::{AfterBoot, AfterBootPolicy, AfterBootVerdict, TerminatedPod, TerminatedPods, decide};
use crate::status::Spool;
use crate::status::spool_tests::{FaultyDisk, Mode};

fn at(second: i64) -> WallTime {
    WallTime::from_second(second).unwrap()
}

fn ended() -> TerminatedPod {
    TerminatedPod {
        namespace: "default".into(),
        name: "web".into(),
        uid: PodUid::new("u1"),
        by: "shutdown".into(),
        at: at(1000),
        boot: Some("boot-1".into()),
    }
}

fn pod(phase: &str, reason: &str) -> api::Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "status": { "phase": phase, "conditions": [
            { "type": "DisruptionTarget", "status": "True", "reason": reason }] },
    }))
    .unwrap()
}

fn failed() -> api::Pod {
    pod("Failed", "TerminationByKubelet")
}

fn in_next_boot(pod: Option<&api::Pod>, policy: AfterBootPolicy) -> AfterBootVerdict {
    decide(&ended(), pod, policy, Some("boot-2"), at(2000))
}

#[test]
fn only_a_failed_pod_that_bears_our_mark_is_removed() {
    let delete = AfterBootPolicy::Delete;
    assert_eq!(in_next_boot(Some(&failed()), delete), AfterBootVerdict::Delete);
    assert_eq!(
        in_next_boot(Some(&pod("Succeeded", "TerminationByKubelet")), delete),
        AfterBootVerdict::Forget
    );
    assert_eq!(
        in_next_boot(Some(&pod("Failed", "PreemptionByScheduler")), delete),
        AfterBootVerdict::Forget
    );
    let mut unmarked = failed();
    unmarked.status.as_mut().unwrap().conditions = None;
    assert_eq!(in_next_boot(Some(&unmarked), delete), AfterBootVerdict::Forget);
}

#[test]
fn a_pod_of_the_same_name_that_came_later_is_left_alone() {
    let mut later = failed();
    later.metadata.uid = Some("u2".into());
    assert_eq!(in_next_boot(Some(&later), AfterBootPolicy::Delete), AfterBootVerdict::Forget);
    assert_eq!(in_next_boot(None, AfterBootPolicy::Delete), AfterBootVerdict::Forget);
}

#[test]
fn a_pod_whose_last_status_is_on_its_way_is_waited_for() {
    let running = pod("Running", "TerminationByKubelet");
    assert_eq!(in_next_boot(Some(&running), AfterBootPolicy::Delete), AfterBootVerdict::Wait(None));
}

#[test]
fn a_deletion_in_progress_is_left_alone() {
    let mut deleting = failed();
    deleting.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1500)));
    assert_eq!(in_next_boot(Some(&deleting), AfterBootPolicy::Delete), AfterBootVerdict::Forget);
}

#[test]
fn policies() {
    let failed = failed();
    let verdict =
        |policy, boot: Option<&str>, now| decide(&ended(), Some(&failed), policy, boot, at(now));
    let hour = AfterBootPolicy::After(Duration::from_secs(3600));
    assert_eq!(
        verdict(AfterBootPolicy::Keep, Some("boot-2"), 2000),
        AfterBootVerdict::Forget,
        "kept"
    );
    assert_eq!(
        verdict(AfterBootPolicy::Delete, Some("boot-1"), 2000),
        AfterBootVerdict::Wait(None),
        "same boot"
    );
    assert_eq!(verdict(AfterBootPolicy::Delete, None, 2000), AfterBootVerdict::Delete);
    assert_eq!(
        verdict(hour, Some("boot-1"), 2000),
        AfterBootVerdict::Wait(Some(Duration::from_secs(2600)))
    );
    assert_eq!(verdict(hour, Some("boot-1"), 4600), AfterBootVerdict::Delete);
    assert_eq!(
        verdict(hour, Some("boot-2"), 10),
        AfterBootVerdict::Wait(Some(Duration::from_secs(3600))),
        "a clock that went back makes no pod old"
    );
}

fn label(name: &str) -> PodRef {
    PodRef { namespace: "default".into(), name: name.into(), uid: PodUid::new(name) }
}

fn list(home: &TempDir) -> TerminatedPods {
    TerminatedPods::new(home.path(), Some("boot-1".into()), WallClock::fixed(at(1000)))
}

fn names(list: &TerminatedPods) -> Vec<String> {
    list.all().iter().map(|ended| ended.name.to_string()).collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::test]
async fn ends_that_the_node_wanted_are_noted_and_those_of_others_are_not() {
    let home = TempDir::new().unwrap();
    let noted = list(&home);
    let kills = [
        ("a", KillReason::Shutdown),
        ("b", KillReason::Eviction),
        ("c", KillReason::Preemption),
        ("d", KillReason::Removed),
        ("e", KillReason::Operator),
        ("a", KillReason::Eviction),
    ];
    for (name, by) in kills {
        noted.record(&Event::KillRequested {
            pod: label(name),
            is_static: false,
            by,
            grace: Duration::ZERO,
            status: None,
        });
    }
    assert!(noted.flush(soon()).await);
    let next = list(&home);
    next.load().await.unwrap();
    assert_eq!(names(&next), ["a", "b", "c"]);
    assert_eq!(&*next.all()[0].by, "shutdown");
    next.forget(&[PodUid::new("b")].into());
    next.note(&label("f"), "drain");
    assert!(next.flush(soon()).await);
    let third = list(&home);
    third.load().await.unwrap();
    assert_eq!(names(&third), ["a", "c", "f"]);
}

#[tokio::test]
async fn what_is_noted_before_the_list_was_read_loses_nothing_of_it() {
    let home = TempDir::new().unwrap();
    let first = list(&home);
    first.note(&label("a"), "shutdown");
    assert!(first.flush(soon()).await);
    let next = list(&home);
    next.note(&label("b"), "shutdown");
    assert!(next.flush(soon()).await);
    let third = list(&home);
    third.load().await.unwrap();
    assert_eq!(names(&third), ["a", "b"]);
}

#[tokio::test]
async fn many_ends_at_once_are_few_writes() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Full, 0..0));
    let wall = WallClock::fixed(at(1000));
    let spool = Spool::on(disk.clone(), home.path(), 4096, wall.clone());
    let noted = TerminatedPods::with_spool(spool, None, wall);
    for number in 0..1000 {
        noted.note(&label(&format!("pod-{number}")), "shutdown");
    }
    assert!(noted.flush(soon()).await);
    assert!(disk.count() < 30, "{} operations", disk.count());
}

/// A list of thousands, each of which is removed by itself, takes as long as their number squared.
#[tokio::test]
async fn pods_that_the_policy_keeps_are_forgotten_all_at_once() {
    let home = TempDir::new().unwrap();
    let noted = list(&home);
    for name in ["a", "b", "c"] {
        noted.note(&label(name), "shutdown");
    }
    let before = noted.0.list.lock().version;
    let wall = WallClock::fixed(at(2000));
    let mut after_boot = AfterBoot::new(noted.clone(), AfterBootPolicy::Keep, wall);
    assert!(after_boot.due(noted.all(), Instant::now()).is_empty());
    assert_eq!((names(&noted).len(), noted.0.list.lock().version), (0, before + 1));
}

#[tokio::test]
async fn a_list_that_the_disk_did_not_take_is_written_once_it_does_without_another_change() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Full, 0..1));
    let wall = WallClock::fixed(at(1000));
    let spool = Spool::on(disk, home.path(), 4096, wall.clone());
    let noted = TerminatedPods::with_spool(spool, None, wall);
    noted.note(&label("a"), "shutdown");
    assert!(noted.flush(soon()).await);
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_waits_for_it() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Full, 0..usize::MAX));
    let wall = WallClock::fixed(at(1000));
    let spool = Spool::on(disk, home.path(), 4096, wall.clone());
    let noted = TerminatedPods::with_spool(spool, None, wall);
    noted.note(&label("a"), "shutdown");
    let start = Instant::now();
    assert!(!noted.flush(start + Duration::from_millis(200)).await);
    assert_eq!(names(&noted), ["a"], "it is remembered as long as the agent lives");
}
