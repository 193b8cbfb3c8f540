//! `plan eviction`, for cases and from an agent.

use std::io::Write;

use super::commands::with_agent;
use super::world::run;
use crate::Exit;
use winddown_control::api::{
    EvictionHookRun, EvictionPlan, EvictionRecord, PressureStatus, RankedPodStatus, ThresholdStatus,
};

/// Returns the plan of an agent that is short of memory.
pub(super) fn asked(signal: Option<&str>) -> EvictionPlan {
    let pod = |name: &str, usage, verdict: &str| RankedPodStatus {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        usage,
        verdict: verdict.to_owned(),
        ..RankedPodStatus::default()
    };
    let signal = signal.unwrap_or("memory.available");
    let threshold = ThresholdStatus {
        signal: signal.to_string(),
        hard: true,
        threshold: Some("100Mi".to_owned()),
        available: Some("90Mi".to_owned()),
        met_for_seconds: Some(2.0),
        ..ThresholdStatus::default()
    };
    EvictionPlan {
        pressure: PressureStatus {
            conditions: vec!["MemoryPressure".to_owned()],
            thresholds: vec![threshold],
            ..PressureStatus::default()
        },
        signal: Some(signal.to_string()),
        waits: false,
        pods: vec![
            pod("hog", Some(4096), "chosen"),
            pod("web", Some(1), "notNeeded"),
            pod("dns", Some(9), "critical"),
        ],
        history: vec![EvictionRecord {
            id: 1,
            at: "2026-11-20T12:00:00Z".parse().unwrap(),
            signal: signal.to_string(),
            threshold: Some("100Mi".to_owned()),
            available: Some("90Mi".to_owned()),
            hard: true,
            met_for_ms: Some(0),
            victim: Some("default/hog".to_owned()),
            outcome: "asked to terminate".to_owned().into(),
            hook: Some(EvictionHookRun {
                took_ms: 12,
                error: Some("it failed: exit status: 1".to_owned()),
                output: "no room\non /var".to_owned(),
            }),
            ranking: Vec::new(),
            times: 1,
        }],
    }
}

#[test]
fn the_running_agent_says_how_near_it_is_and_who_would_end() {
    with_agent(|socket| {
        let ran = run(&format!("winddown {socket} plan eviction"));
        assert_eq!(ran.exit, Exit::Success, "{}", ran.err);
        assert!(
            ran.out
                .starts_with("pressure: MemoryPressure; memory.available 90Mi, threshold 100Mi\n")
        );
        assert!(ran.out.contains("EVICTION ORDER FOR memory.available"), "{}", ran.out);
        assert!(ran.out.contains("default/hog"), "{}", ran.out);
        assert!(!ran.out.contains("default/dns"), "it stays:\n{}", ran.out);
        let said = "90Mi, threshold 100Mi, default/hog: asked to terminate\n    \
                    hook, after 12 ms: it failed: exit status: 1\n      no room\n      on /var";
        assert!(ran.out.contains(said), "{}", ran.out);
        let ran = run(&format!("winddown {socket} plan eviction --explain"));
        assert!(ran.out.contains("kept: exempt from eviction"), "{}", ran.out);
        let ran = run(&format!("winddown {socket} plan eviction --signal pid.available -o json"));
        let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&told["signal"], &told["kind"]),
            (&"pid.available".into(), &"EvictionPlan".into())
        );
    });
}

fn plan(text: &str, options: &str) -> super::world::Ran {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    run(&format!("winddown plan eviction -f {} {options}", file.path().display()))
}

const CASE: &str = r#"{"id":"a","signal":"memory.available","pods":[{"metadata":{"name":"db"}},{"metadata":{"name":"web"},"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1Mi"}}}]}}],"stats":[{"name":"web","memoryWorkingSetBytes":2097152},{"name":"db","memoryWorkingSetBytes":1}]}"#;

#[test]
fn each_case_gets_one_line_with_the_order() {
    let ran = plan(&format!("{CASE}\n\n{CASE}\n"), "");
    assert_eq!((ran.out.as_str(), ran.exit), ("a: web, db\na: web, db\n", Exit::Success));
    let ran = plan(CASE, "-o json");
    let line: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(line["order"], serde_json::json!(["web", "db"]));
}

#[test]
fn explained_each_pod_has_a_line_with_the_figures_and_the_reason() {
    let ran = plan(CASE, "--explain");
    assert!(ran.out.contains("default/web"), "{}", ran.out);
    assert!(ran.out.contains("2097152 of"), "{}", ran.out);
    assert!(ran.out.contains("evicted: it exceeds its request"), "{}", ran.out);
}
