//! Tolerations against `NoExecute` taints.

use super::*;

fn tolerates(tolerations: &Value, taints: &Value) -> bool {
    let node = node(&json!({"spec": {"taints": taints}}));
    let spec = json!({"containers": [], "tolerations": tolerations});
    let found = failures(&pod("u", &spec), &node, &[]);
    assert!(found.is_empty() || found == [AdmissionFailure::TAINT_TOLERATION]);
    found.is_empty()
}

#[test]
fn a_toleration_covers_by_key_effect_and_value() {
    let taint = json!([{"key": "k", "value": "5", "effect": "NoExecute"}]);
    for (toleration, expected) in [
        (json!({"key": "k", "value": "5"}), true),
        (json!({"key": "k", "value": "5", "operator": "Equal"}), true),
        (json!({"key": "k", "value": "6", "operator": "Equal"}), false),
        (json!({"key": "k"}), false),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"operator": "Exists"}), true),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), true),
        (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
        (json!({"key": "k", "operator": "Exists", "tolerationSeconds": 0}), true),
        (json!({"key": "k", "operator": "Gt", "value": "4"}), true),
        (json!({"key": "k", "operator": "Gt", "value": "5"}), false),
        (json!({"key": "k", "operator": "Lt", "value": "6"}), true),
        (json!({"key": "k", "operator": "Lt", "value": "5"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "04"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "+4"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "-4"}), true),
        (json!({"key": "k", "operator": "Gt", "value": "-0"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "-+4"}), false),
        (json!({"key": "k", "operator": "Gt", "value": ""}), false),
        (json!({"key": "k", "operator": "Like", "value": "5"}), false),
    ] {
        assert_eq!(tolerates(&json!([toleration]), &taint), expected, "{toleration}");
    }
}

#[test]
fn every_ending_taint_needs_a_toleration() {
    let taints = json!([
        {"key": "a", "effect": "NoExecute"},
        {"key": "b", "effect": "NoExecute"},
        {"key": "c", "effect": "NoSchedule"},
    ]);
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    assert!(!tolerates(&json!([]), &taints));
    assert!(!tolerates(&json!([exists("a")]), &taints));
    assert!(tolerates(&json!([exists("a"), exists("b")]), &taints));
    assert!(tolerates(&json!([]), &json!([])));
}

#[test]
fn a_mirror_pod_is_judged_like_any_pod_of_the_api() {
    let tainted = node(&json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}));
    let annotations = json!({"kubernetes.io/config.source": "api"});
    let spec = json!({"containers": []});
    let of_api = from(&json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec}));
    assert_eq!(failures(&of_api, &tainted, &[]), [AdmissionFailure::TAINT_TOLERATION]);
}
