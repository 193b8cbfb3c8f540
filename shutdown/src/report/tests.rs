use std::time::Duration;

use super::{
    BudgetReport, GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger, render_text,
};
use crate::CRITICAL_PRIORITY;

mod store;

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn pod(name: &str, end: PodEnd, asked: Option<u64>, exit: Option<u64>) -> PodReport {
    PodReport {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        priority: None,
        grace: ms(20_000),
        wanted_grace: None,
        asked: asked.map(ms),
        sigterm: asked.map(|asked| ms(asked + 3)),
        exit: exit.map(ms),
        end,
        containers: Vec::new(),
        mounts: Vec::new(),
        error: None,
    }
}

pub(super) fn group(priority: i32, span: Option<(u64, u64)>, pods: Vec<PodReport>) -> GroupReport {
    GroupReport {
        priority,
        name: None,
        configured: ms(20_000),
        allowed: ms(20_000),
        latest_end: ms(30_000),
        started: span.map(|(started, _)| ms(started)),
        ended: span.map(|(_, ended)| ms(ended)),
        pods,
    }
}

pub(super) fn report(outcome: Outcome, took: u64, groups: Vec<GroupReport>) -> ShutdownReport {
    ShutdownReport {
        api_version: "winddown.dev/v1alpha1".into(),
        kind: "ShutdownReport".into(),
        version: 1,
        trigger: Trigger::LoginManager,
        node_action: Some("powerOff".into()),
        boot_id: "4f1c8a2e".into(),
        started_at: "2026-11-20T03:44:00.123456789Z".parse().unwrap(),
        ended_at: "2026-11-20T03:44:08.3Z".parse().unwrap(),
        took: ms(took),
        budget: BudgetReport {
            requested: ms(30_000),
            pods: ms(30_000),
            reserve: ms(2_000),
            delay: Some(ms(32_000)),
            delay_set_by: None,
        },
        notice: None,
        endpoint_drain: None,
        resumed: Vec::new(),
        outcome,
        pods_unknown: false,
        groups,
        statuses_not_told: Vec::new(),
        warnings: Vec::new(),
    }
}

fn text(report: &ShutdownReport) -> String {
    render_text(report, false)
}

fn headline(report: &ShutdownReport) -> String {
    text(report).lines().next().unwrap().to_string()
}

#[test]
fn a_clean_shutdown_reads_well() {
    let groups = vec![
        group(
            0,
            Some((0, 3012)),
            vec![
                pod("web", PodEnd::Exited, Some(0), Some(1250)),
                pod("database", PodEnd::Exited, Some(0), Some(3012)),
            ],
        ),
        group(1000, None, vec![]),
        group(
            CRITICAL_PRIORITY,
            Some((3013, 8176)),
            vec![pod("dns", PodEnd::Exited, Some(3013), Some(8176))],
        ),
    ];
    assert_eq!(
        text(&report(Outcome::Clean, 8177, groups)),
        "\
Clean shutdown: 3 pods ended by themselves in 8.2 s (budget 30 s).
2026-11-20 03:44:00 UTC · power-off · boot 4f1c8a2e

priority 0 and above · 2 pods · took 3.0 s of 30 s
  POD                GRACE     ASKED   SIGTERM      EXIT
  default/web         20 s     0.000     0.003     1.250
  default/database    20 s     0.000     0.003     3.012

priority 2000000000 and above · 1 pod · took 5.2 s of 27.0 s
  POD                GRACE     ASKED   SIGTERM      EXIT
  default/dns         20 s     3.013     3.016     8.176
"
    );
}

#[test]
fn who_was_killed_and_who_is_left_is_said_beside_the_pod() {
    let killed = PodReport {
        containers: vec!["main".into(), "log".into()],
        wanted_grace: Some(ms(60_000)),
        ..pod("slow", PodEnd::Killed, Some(0), Some(20_004))
    };
    let hung = PodReport {
        containers: vec!["main".into()],
        error: Some("pod default/hung still runs after 31s: main".into()),
        ..pod("hung", PodEnd::Left, Some(0), None)
    };
    let unknown = PodReport {
        sigterm: None,
        error: Some("no answer from the pod workers at the deadline".into()),
        ..pod("unknown", PodEnd::Left, Some(0), None)
    };
    let mut report = report(
        Outcome::Left,
        31_000,
        vec![group(0, Some((0, 30_100)), vec![killed, hung, unknown])],
    );
    report.budget.pods = ms(27_000);
    report.budget.delay = Some(ms(30_000));
    report.budget.delay_set_by =
        Some("/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf".into());
    assert_eq!(
        text(&report),
        "\
Incomplete shutdown: 2 of 3 pods still ran when the node was let go, after 31 s (budget 27 s).
2026-11-20 03:44:00 UTC · power-off · boot 4f1c8a2e
The groups ask for 30 s, but the login manager waits only 30 s (set by \
/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf), and 2 s are kept for \
the end: the pods got 27 s.

priority 0 and above · 3 pods · took 30.1 s of 30 s
  POD               GRACE     ASKED   SIGTERM      EXIT
  default/slow       20 s     0.000     0.003    20.004  killed: main, log (its own grace is 60 s)
  default/hung       20 s     0.000     0.003         -  STILL RUNS: main
  default/unknown    20 s     0.000         -         -  STILL RUNS? no answer from the pod \
workers at the deadline
"
    );
}

#[test]
fn each_outcome_has_its_sentence() {
    let ended = || pod("a", PodEnd::Exited, Some(0), Some(1000));
    let one = |outcome, pods| report(outcome, 1500, vec![group(0, Some((0, 1000)), pods)]);
    assert_eq!(
        headline(&one(Outcome::Clean, vec![ended()])),
        "Clean shutdown: 1 pod ended by itself in 1.5 s (budget 30 s)."
    );
    assert_eq!(
        headline(&one(Outcome::Clean, vec![])),
        "Clean shutdown: there were no pods to end."
    );
    let killed = PodReport { end: PodEnd::Killed, ..ended() };
    assert_eq!(
        headline(&one(Outcome::Forced, vec![ended(), killed])),
        "Forced shutdown: 1 of 2 pods had to be killed, all ended in 1.5 s (budget 30 s)."
    );
    let ending = pod("b", PodEnd::Ending, Some(0), None);
    let spared = pod("c", PodEnd::Spared, None, None);
    let pods = vec![ended(), ending, spared];
    assert_eq!(
        headline(&one(Outcome::Cancelled, pods.clone())),
        "Cancelled shutdown, after 1.5 s: 1 pod had ended, 1 still ending, 1 spared."
    );
    assert_eq!(
        headline(&one(Outcome::Interrupted, pods)),
        "Interrupted shutdown: the agent was stopped after 1.5 s: 1 pod had ended, 1 still ending, \
         1 spared."
    );
    assert_eq!(
        headline(&one(Outcome::Left, vec![])),
        "Failed shutdown: it is not known what became of the pods, after 1.5 s (budget 30 s)."
    );
    let drain = ShutdownReport { trigger: Trigger::Drain, ..one(Outcome::Clean, vec![ended()]) };
    assert!(headline(&drain).starts_with("Clean drain: "));
}

#[test]
fn a_spared_group_is_one_line() {
    let spared = vec![pod("c", PodEnd::Spared, None, None)];
    let report = report(Outcome::Cancelled, 1500, vec![group(7, None, spared)]);
    assert!(text(&report).ends_with("\npriority 7 and above · 1 pod · spared\n"));
}

#[test]
fn hostile_names_cannot_move_the_cursor() {
    let hostile = pod("\u{1b}[2J\r\n\u{202e}x", PodEnd::Exited, Some(0), Some(1));
    let report = report(Outcome::Clean, 1, vec![group(0, Some((0, 1)), vec![hostile])]);
    let text = text(&report);
    assert!(text.contains("default/\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}x"), "{text}");
}

#[test]
fn colour_only_when_asked_for() {
    let report = report(Outcome::Forced, 1, vec![group(0, Some((0, 1)), vec![])]);
    assert!(!render_text(&report, false).contains('\u{1b}'));
    assert!(render_text(&report, true).starts_with("\u{1b}[33mForced shutdown"));
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
            "endedAt": "2026-11-20T03:44:08.3Z",
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
                "latestEndSeconds": 30.0,
                "startedMs": 0,
                "endedMs": 20_004,
                "pods": [{
                    "namespace": "default",
                    "name": "slow",
                    "uid": "uid-slow",
                    "priority": 5,
                    "graceSeconds": 20.0,
                    "wantedGraceSeconds": 60.0,
                    "askedMs": 0,
                    "sigtermMs": 3,
                    "exitMs": 20_004,
                    "end": "killed",
                    "containers": ["main"],
                }],
            }],
            "warnings": ["something"],
        })
    );
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<ShutdownReport>(&text).unwrap(), report);
}
