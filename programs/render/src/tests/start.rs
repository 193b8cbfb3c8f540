//! The start order of pods.

use winddown_control::api::{StartPlan, StartStatus, StartingGroup, StartingPod};
use winddown_node::ordered_start::StartReport;

use super::fixtures::fresh;
use crate::{View, start_plan, start_report, status};

const PLAIN: View = View { width: Some(80), color: false, wide: false };

#[test]
fn a_plan_names_the_groups_in_the_order_in_which_they_start() {
    let pod = |name: &str, priority: Option<i32>| StartingPod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: String::new(),
        priority: priority.unwrap_or_default(),
        has_no_priority: priority.is_none(),
    };
    let group = |name: &str, pods| StartingGroup {
        name: name.to_owned(),
        pods,
        ..StartingGroup::default()
    };
    let mut plan = StartPlan { group_timeout_seconds: 30.0, ..Default::default() };
    plan.groups = vec![
        group("system pods", vec![pod("dns", Some(2_000_000_000))]),
        group("ordinary pods", vec![pod("web", Some(0)), pod("\u{1b}[2J", None)]),
    ];
    let text = start_plan(&plan, &PLAIN);
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("NAMESPACE")).collect();
    let head = "start: 3 pods, each group when the one before it is ready, or after 30s";
    assert_eq!((lines[0], lines[2], lines[5]), (head, "1. system pods: 1", "2. ordinary pods: 2"));
    assert!(lines[3].ends_with("dns   2000000000"), "{text}");
    let ends: Vec<_> = lines[6..8].iter().map(|line| line.split_whitespace().last()).collect();
    assert_eq!(ends, [Some("0"), Some("-")], "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    plan.group_timeout_seconds = 0.0;
    let head = "start: 3 pods, all at once; with startGroupTimeout, in this order:";
    assert_eq!(start_plan(&plan, &PLAIN).lines().next(), Some(head));
    let mut plan = StartPlan { group_timeout_seconds: 0.0, ..Default::default() };
    plan.warnings = vec!["ordered start is off".to_owned()];
    assert_eq!(start_plan(&plan, &PLAIN), "start: 0 pods, all at once\n\n! ordered start is off\n");
}

/// A pod that never becomes ready, and a start that is cancelled.
const REPORT: &str = r#"{
    "apiVersion": "winddown.dev/v1alpha1", "kind": "StartReport", "version": 1, "bootId": "b",
    "startedAt": "2026-11-20T12:00:00Z", "bootSeconds": 8.25, "groupTimeoutSeconds": 20, "outcome": "OUTCOME",
    "groups": [
        {"name": "system pods", "priority": 1, "startedSeconds": 0, "tookSeconds": 20, "pods": [
            {"namespace": "kube-system", "name": "dns", "uid": "1", "waitedSeconds": 0, "readySeconds": 2.1, "state": "ready"},
            {"namespace": "kube-system", "name": "liar", "uid": "2", "waitedSeconds": 0, "state": "notReady"}]},
        {"name": "ordinary pods", "priority": 0, "startedSeconds": 20, "pods": [
            {"namespace": "default", "name": "job", "uid": "3", "waitedSeconds": 20, "readySeconds": 0.5, "state": "succeeded"},
            {"namespace": "default", "name": "web", "uid": "4", "waitedSeconds": 20, "state": "starting"}]}],
    "waiting": ["default/batch"] TOOK}"#;

fn report(outcome: &str, took: &str) -> String {
    let text = REPORT.replace("OUTCOME", outcome).replace("TOOK", took);
    let report: StartReport = serde_json::from_str(&text).unwrap();
    start_report(&report, &PLAIN)
}

#[test]
fn a_report_says_who_was_waited_for_and_how_long() {
    let text = report("inProgress", "");
    for line in [
        "The pods are starting in order; 1 pod to come.",
        "2026-11-20 12:00:00 UTC, 8.2 s after the boot; a group was waited for up to 20s",
        "system pods · started at 0 s · not ready after 20 s: kube-system/liar",
        "ordinary pods · started at 20 s · waits for default/web",
        "not started: default/batch",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}\n{text}");
    }
    assert!(text.contains("kube-system/dns    0.000  2.100\n"), "{text}");
    assert!(text.contains("-  not ready\n") && text.contains("0.500  done\n"), "{text}");
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let took = ", \"tookSeconds\": 21.4";
    assert_eq!(first(report("ready", took)), "The pods started in order within 21.4 s.");
    assert_eq!(
        first(report("notReady", took)),
        "The pods started in order within 21.4 s; 2 pods not ready in time."
    );
    assert_eq!(
        first(report("cancelled", took)),
        "The start was cancelled after 21.4 s; 1 pod had not started."
    );
}

#[test]
fn the_status_says_who_waits_for_whom() {
    let mut node = fresh();
    node.start = Some(StartStatus {
        group: "system pods".to_owned(),
        not_ready: vec!["kube-system/dns".to_owned()],
        until: Some(node.time + std::time::Duration::from_secs(12)),
        waiting: 3,
    });
    let text = status(&node, &View { width: None, ..PLAIN });
    let line = text.lines().find(|line| line.starts_with("start")).unwrap();
    assert!(
        line.ends_with("3 pods wait for system pods, 12s more at most: kube-system/dns"),
        "{line}"
    );
}
