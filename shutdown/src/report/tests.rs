use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::{
    BudgetReport, DelayedBy, GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger,
    WorkOutcome, WorkReport,
};
use crate::RunPhase;

mod samples;
mod store;

pub(super) use samples::{group, ms, pod, report};

#[test]
fn an_outcome_is_known_by_its_name_in_json_and_a_new_one_is_not() {
    for outcome in Outcome::ALL {
        let name = serde_json::to_value(outcome).unwrap();
        assert_eq!(Outcome::named(name.as_str().unwrap()), Some(outcome));
    }
    assert_eq!(Outcome::named("splendid"), None);
    assert_eq!(Outcome::named(""), None);
}

/// What an agent left is read by the next one, a run in its middle too. Each name as it was before 0.1.0.
#[test]
fn a_report_with_the_names_of_an_earlier_agent_is_read() {
    let asked = PodReport {
        wanted_grace: Some(ms(30_000)),
        prior_reason: Some("operator".to_owned()),
        stays_on_reboot: true,
        ..pod("a", PodEnd::Terminating, Some(5), None)
    };
    let left = pod("b", PodEnd::StillRunning, Some(6), None);
    let stays = pod("c", PodEnd::NotDrainable, None, None);
    let pods = vec![asked, left, stays];
    let mut written = report(Outcome::Incomplete, 1500, vec![group(0, Some((0, 1000)), pods)]);
    written.unsent_statuses.push("default/a".to_owned());
    written.work.push(WorkReport {
        plugin: "cluster".to_owned(),
        what: "cordon".to_owned(),
        point: "before the pods".to_owned(),
        allowed: ms(1000),
        started: Some(ms(1)),
        ended: Some(ms(2)),
        outcome: WorkOutcome::Done,
        error: None,
        remark: None,
    });
    let mut text = serde_json::to_string(&written).unwrap();
    for (now, before) in [
        ("\"finishedAt\":", "\"endedAt\":"),
        ("\"unsentStatuses\":", "\"statusesNotTold\":"),
        ("\"deadlineSeconds\":", "\"latestEndSeconds\":"),
        ("\"finishedMs\":", "\"endedMs\":"),
        ("\"ownGraceSeconds\":", "\"wantedGraceSeconds\":"),
        ("\"requestedMs\":", "\"askedMs\":"),
        ("\"priorReason\":", "\"endingBy\":"),
        ("\"staysOnReboot\":", "\"stays\":"),
        ("\"outcome\":\"incomplete\"", "\"outcome\":\"left\""),
        ("\"outcome\":\"terminating\"", "\"end\":\"ending\""),
        ("\"outcome\":\"stillRunning\"", "\"end\":\"left\""),
        ("\"outcome\":\"notDrainable\"", "\"end\":\"stays\""),
    ] {
        assert!(text.contains(now), "{now} is not in {text}");
        text = text.replace(now, before);
    }
    let read: ShutdownReport = serde_json::from_str(&text).unwrap();
    assert_eq!(read, written);
}

/// The names that are read, aliases too, with spaces.
fn names<T: DeserializeOwned + Debug>() -> String {
    let error = serde_json::from_str::<T>("\"no such name\"").unwrap_err().to_string();
    error.split('`').skip(3).step_by(2).collect::<Vec<_>>().join(" ")
}

/// Agents have written these names into records and reports: one that is renamed stays as an alias, and here.
#[test]
fn each_name_that_an_agent_has_written_is_read() {
    assert_eq!(
        [
            names::<Outcome>(),
            names::<PodEnd>(),
            names::<Trigger>(),
            names::<DelayedBy>(),
            names::<WorkOutcome>(),
            names::<RunPhase>(),
        ],
        [
            "clean forced incomplete left cancelled interrupted cutOff",
            "spared exited notRunning killed ending terminating survives notDrainable stays left stillRunning gone",
            "loginManager drill drain unitStop notice",
            "loginManager serviceManager",
            "skipped running done failed timedOut cancelled",
            "lameDuck ending reporting released cancelled",
        ]
    );
}

#[test]
fn each_end_of_a_pod_is_counted() {
    for name in names::<PodEnd>().split(' ') {
        let end: PodEnd = serde_json::from_value(name.into()).unwrap();
        assert!(PodEnd::ALL.contains(&end), "{name}");
    }
}

#[test]
fn each_outcome_has_its_sentence() {
    let ended = || pod("a", PodEnd::Exited, Some(0), Some(1000));
    let one = |outcome, pods| report(outcome, 1500, vec![group(0, Some((0, 1000)), pods)]);
    assert_eq!(
        one(Outcome::Clean, vec![ended()]).headline(),
        "Clean shutdown: 1 pod exited by itself in 1.5 s (budget 30 s)."
    );
    assert_eq!(
        one(Outcome::Clean, vec![]).headline(),
        "Clean shutdown: there were no pods to terminate."
    );
    let idle = || PodReport { end: PodEnd::NotRunning, ..ended() };
    assert_eq!(
        one(Outcome::Clean, vec![ended(), idle()]).headline(),
        "Clean shutdown: 1 pod exited by itself in 1.5 s (budget 30 s); 1 pod was not running."
    );
    assert_eq!(
        one(Outcome::Clean, vec![idle(), idle()]).headline(),
        "Clean shutdown: there were no pods to terminate; 2 pods were not running."
    );
    let killed = PodReport { end: PodEnd::Killed, ..ended() };
    assert_eq!(
        one(Outcome::Forced, vec![ended(), killed]).headline(),
        "Forced shutdown: 1 of 2 pods had to be killed, all terminated in 1.5 s (budget 30 s)."
    );
    let ending = pod("b", PodEnd::Terminating, Some(0), None);
    let spared = pod("c", PodEnd::Spared, None, None);
    let pods = vec![ended(), ending, spared];
    assert_eq!(
        one(Outcome::Cancelled, pods.clone()).headline(),
        "Cancelled shutdown, after 1.5 s: 1 pod had terminated, 1 still terminating, 1 spared."
    );
    // What becomes of a pod that was asked is not known.
    assert!(!one(Outcome::Cancelled, pods.clone()).is_graceful());
    let kept = pods.iter().filter(|pod| pod.end != PodEnd::Terminating).cloned().collect();
    assert!(one(Outcome::Cancelled, kept).is_graceful());
    let unknown = ShutdownReport { pods_unknown: true, ..one(Outcome::Cancelled, vec![]) };
    assert!(!unknown.is_graceful());
    assert_eq!(
        one(Outcome::Interrupted, pods).headline(),
        "Interrupted shutdown: the agent was stopped after 1.5 s: 1 pod had terminated, 1 still terminating, \
         1 spared."
    );
    let drain = ShutdownReport { trigger: Trigger::Drain, ..one(Outcome::Clean, vec![ended()]) };
    assert!(drain.headline().starts_with("Clean drain: "));
}

#[test]
fn an_incomplete_run_says_what_it_left_and_first_what_is_known_to_run() {
    let gone = || pod("a", PodEnd::Gone, None, None);
    let left = || pod("b", PodEnd::StillRunning, Some(0), None);
    let exited = || pod("c", PodEnd::Exited, Some(0), Some(1000));
    let spared = || pod("d", PodEnd::Spared, None, None);
    let running = "1 of 2 pods was still running when the lock was released";
    let unlisted =
        "the container runtime did not list its pods, so some may have been left running";
    for (pods, pods_unknown, wanted) in [
        (vec![gone(), left()], false, running),
        (vec![gone(), left()], true, running),
        (vec![gone()], true, unlisted),
        (vec![], true, unlisted),
        (vec![gone()], false, "1 of 1 pod was gone when the agent came back, in an unknown order"),
        // As agents before 0.1.0 wrote it.
        (vec![exited(), spared()], false, "1 pod had terminated, 0 still terminating, 1 spared"),
    ] {
        let run = report(Outcome::Incomplete, 1500, vec![group(0, Some((0, 1000)), pods)]);
        let said = ShutdownReport { pods_unknown, ..run }.headline();
        assert_eq!(said, format!("Incomplete shutdown: {wanted}, after 1.5 s (budget 30 s)."));
    }
}

#[test]
fn only_a_run_that_held_the_lock_is_over_with_it() {
    let left = vec![pod("a", PodEnd::StillRunning, Some(0), None)];
    let one = report(Outcome::Incomplete, 1500, vec![group(0, Some((0, 1000)), left)]);
    for (trigger, over, end) in [
        (Trigger::LoginManager, "the lock was released", "lock released"),
        (Trigger::Drill, "the lock was released", "lock released"),
        (Trigger::Drain, "the drain was over", "drain finished"),
        (Trigger::UnitStop, "its time was over", "shutdown finished"),
        (Trigger::Notice, "its time was over", "shutdown finished"),
    ] {
        let run = ShutdownReport { trigger, ..one.clone() };
        let (said, wanted) =
            (run.headline(), format!("1 of 1 pod was still running when {over}, "));
        assert!(said.contains(&wanted), "{said}");
        assert_eq!(run.end_of_run(), end);
    }
}

#[test]
fn the_json_is_stable() {
    let pods = vec![PodReport {
        priority: Some(5),
        containers: vec!["main".into()],
        wanted_grace: Some(ms(60_000)),
        ..pod("slow", PodEnd::Killed, Some(0), Some(20_004))
    }];
    let mut report = report(Outcome::Forced, 20_005, vec![group(0, Some((0, 20_004)), pods)]);
    report.warnings.push("something".into());
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        serde_json::json!({
            "apiVersion": "winddown.dev/v1alpha1",
            "kind": "ShutdownReport",
            "version": 1,
            "trigger": "loginManager",
            "nodeAction": "powerOff",
            "bootId": "4f1c8a2e",
            "startedAt": "2026-11-20T03:44:00.123456789Z",
            "finishedAt": "2026-11-20T03:44:08.3Z",
            "tookSeconds": 20.005,
            "budget": {
                "requestedSeconds": 30.0,
                "podsSeconds": 30.0,
                "reserveSeconds": 2.0,
                "delaySeconds": 32.0,
            },
            "outcome": "forced",
            "groups": [{
                "priority": 0,
                "configuredSeconds": 20.0,
                "allowedSeconds": 20.0,
                "deadlineSeconds": 30.0,
                "startedMs": 0,
                "finishedMs": 20_004,
                "pods": [{
                    "namespace": "default",
                    "name": "slow",
                    "uid": "uid-slow",
                    "priority": 5,
                    "graceSeconds": 20.0,
                    "ownGraceSeconds": 60.0,
                    "requestedMs": 0,
                    "sigtermMs": 3,
                    "exitMs": 20_004,
                    "outcome": "killed",
                    "containers": ["main"],
                }],
            }],
            "warnings": ["something"],
        })
    );
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ShutdownReport>(&text).unwrap(), report);
}
