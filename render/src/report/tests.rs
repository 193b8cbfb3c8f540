use winddown_shutdown::{
    BudgetReport, GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger,
};

use super::text;

#[path = "../../../shutdown/src/report/tests/samples.rs"]
mod samples;

pub(super) use samples::{group, ms, pod, report};

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
            2_000_000_000,
            Some((3013, 8176)),
            vec![pod("dns", PodEnd::Exited, Some(3013), Some(8176))],
        ),
    ];
    assert_eq!(
        text(&report(Outcome::Clean, 8177, groups), false),
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
fn who_had_asked_a_pod_to_end_before_is_said_beside_it() {
    let old = PodReport {
        ending_by: Some("max-age".into()),
        remark: Some("its disruption budget refused for 6.5 s".into()),
        mounts: vec!["/a".into()],
        ..pod("old", PodEnd::Exited, Some(0), Some(1250))
    };
    let text =
        text(&report(Outcome::Clean, 1250, vec![group(0, Some((0, 1250)), vec![old])]), false);
    assert!(text.contains("was ending already (max-age); its disruption budget refused for 6.5 s; 1 mount not released"), "{text}");
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
        text(&report, false),
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
fn a_spared_group_is_one_line() {
    let spared = vec![pod("c", PodEnd::Spared, None, None)];
    let report = report(Outcome::Cancelled, 1500, vec![group(7, None, spared)]);
    assert!(text(&report, false).ends_with("\npriority 7 and above · 1 pod · spared\n"));
}

#[test]
fn hostile_names_cannot_move_the_cursor() {
    let hostile = pod("\u{1b}[2J\r\n\u{202e}x", PodEnd::Exited, Some(0), Some(1));
    let report = report(Outcome::Clean, 1, vec![group(0, Some((0, 1)), vec![hostile])]);
    let text = text(&report, false);
    assert!(text.contains("default/\\x1b[2J\\r\\n\\u{202e}x"), "{text}");
}

#[test]
fn colour_only_when_asked_for() {
    let report = report(Outcome::Forced, 1, vec![group(0, Some((0, 1)), vec![])]);
    assert!(!text(&report, false).contains('\u{1b}'));
    assert!(text(&report, true).starts_with("\u{1b}[33mForced shutdown"));
}
