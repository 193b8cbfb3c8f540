use serde_json::{Value, json};

use crate::{Pod, SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY};

fn pod(annotations: &Value, spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["containers"] = json!([]);
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "annotations": annotations});
    Pod::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()).unwrap()
}

fn of_priority(priority: i32) -> Pod {
    pod(&json!({}), &json!({ "priority": priority }))
}

fn from_source(source: &str, spec: &Value) -> Pod {
    pod(&json!({"kubernetes.io/config.source": source}), spec)
}

#[test]
fn a_pod_is_static_when_its_source_is_not_the_api_server() {
    for (annotations, is_static, source) in [
        (json!({}), false, None),
        (json!({"kubernetes.io/config.source": "api"}), false, Some("api")),
        (json!({"kubernetes.io/config.source": "file"}), true, Some("file")),
        (json!({"kubernetes.io/config.source": "http"}), true, Some("http")),
        (json!({"kubernetes.io/config.source": ""}), true, Some("")),
    ] {
        let pod = pod(&annotations, &json!({}));
        assert_eq!((pod.is_static(), pod.source()), (is_static, source), "{source:?}");
    }
}

#[test]
fn static_mirror_and_system_priority_pods_are_critical() {
    let class = json!({"priorityClassName": "system-node-critical"});
    for (what, pod, critical) in [
        ("nothing", pod(&json!({}), &json!({})), false),
        ("api source", from_source("api", &json!({})), false),
        ("file source", from_source("file", &json!({})), true),
        ("mirror", pod(&json!({"kubernetes.io/config.mirror": ""}), &json!({})), true),
        ("highest user class", of_priority(1_000_000_000), false),
        ("just below", of_priority(SYSTEM_CRITICAL_PRIORITY - 1), false),
        ("cluster critical", of_priority(SYSTEM_CRITICAL_PRIORITY), true),
        ("node critical", of_priority(SYSTEM_NODE_CRITICAL_PRIORITY), true),
        ("largest", of_priority(i32::MAX), true),
        ("class name alone", pod(&json!({}), &class), false),
    ] {
        assert_eq!(pod.is_critical(), critical, "{what}");
    }
}

#[test]
fn node_critical_takes_both_the_class_and_criticality() {
    let spec = |priority, class| json!({"priority": priority, "priorityClassName": class});
    for (priority, class, expected) in [
        (SYSTEM_NODE_CRITICAL_PRIORITY, "system-node-critical", true),
        (SYSTEM_NODE_CRITICAL_PRIORITY, "system-cluster-critical", false),
        (10, "system-node-critical", false),
    ] {
        assert_eq!(pod(&json!({}), &spec(priority, class)).is_node_critical(), expected, "{class}");
    }
    let manifest = from_source("file", &json!({"priorityClassName": "system-node-critical"}));
    assert!(manifest.is_node_critical());
}

#[test]
fn a_static_pod_without_a_priority_has_none_and_counts_as_zero() {
    let pod = from_source("file", &json!({}));
    assert_eq!((pod.priority(), pod.priority_or_zero()), (None, 0));
    assert_eq!(of_priority(-5).priority_or_zero(), -5);
}

#[test]
fn critical_preempts_ordinary_and_otherwise_the_higher_priority_wins() {
    let plain = || pod(&json!({}), &json!({}));
    let manifest = || from_source("file", &json!({}));
    for (what, preemptor, victim, expected) in [
        ("static over plain", manifest(), plain(), true),
        (
            "higher over lower critical",
            of_priority(2_000_001_000),
            of_priority(2_000_000_000),
            true,
        ),
        (
            "lower over higher critical",
            of_priority(2_000_000_000),
            of_priority(2_000_001_000),
            false,
        ),
        (
            "higher priority over a static pod of lower",
            of_priority(2_000_001_000),
            from_source("file", &json!({"priority": 2_000_000_000})),
            true,
        ),
        ("two static without priority", manifest(), manifest(), false),
        ("critical over static without priority", of_priority(2_000_001_000), manifest(), false),
        ("static without priority over critical", manifest(), of_priority(2_000_000_000), false),
        ("equal", of_priority(2_000_000_000), of_priority(2_000_000_000), false),
        ("two ordinary", of_priority(10), of_priority(5), true),
        ("two ordinary without priority", plain(), plain(), false),
        (
            "static of low priority over ordinary of high",
            from_source("file", &json!({"priority": -1})),
            of_priority(1_000),
            true,
        ),
    ] {
        assert_eq!(preemptor.may_preempt(&victim), expected, "{what}");
    }
    let own = of_priority(SYSTEM_NODE_CRITICAL_PRIORITY);
    assert!(!own.may_preempt(&own), "itself");
}
