//! Node selectors and required affinity.

use super::*;

fn labelled() -> NodeView {
    node(&json!({"metadata": {
        "name": "machine1", "labels": {"disk": "ssd", "cores": "8", "zone": "a", "empty": ""},
    }}))
}

fn matches(terms: &Value, node: &NodeView) -> bool {
    let required = json!({"nodeSelectorTerms": terms});
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    });
    let found = failures(&pod("u", &json!({"containers": [], "affinity": affinity})), node, &[]);
    assert!(found.is_empty() || found == [AdmissionFailure::NODE_AFFINITY]);
    found.is_empty()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

#[test]
fn each_operator_means_what_the_scheduler_says() {
    for (key, operator, values, expected) in [
        ("disk", "In", &["hdd", "ssd"][..], true),
        ("disk", "In", &["hdd"], false),
        ("disk", "In", &[], false),
        ("absent", "In", &["ssd"], false),
        ("empty", "In", &[""], true),
        ("disk", "NotIn", &["hdd"], true),
        ("disk", "NotIn", &["ssd"], false),
        ("disk", "NotIn", &[], false),
        ("absent", "NotIn", &["ssd"], true),
        ("disk", "Exists", &[], true),
        ("disk", "Exists", &["ssd"], false),
        ("absent", "Exists", &[], false),
        ("disk", "DoesNotExist", &[], false),
        ("absent", "DoesNotExist", &[], true),
        ("absent", "DoesNotExist", &["x"], false),
        ("cores", "Gt", &["7"], true),
        ("cores", "Gt", &["8"], false),
        ("cores", "Gt", &["-1"], true),
        ("cores", "Gt", &["7", "6"], false),
        ("cores", "Gt", &["seven"], false),
        ("disk", "Gt", &["7"], false),
        ("absent", "Gt", &["7"], false),
        ("cores", "Lt", &["9"], true),
        ("cores", "Lt", &["8"], false),
        ("absent", "Lt", &["9"], false),
        ("disk", "Like", &["ssd"], false),
        ("disk", "", &["ssd"], false),
    ] {
        let term = json!([{"matchExpressions": [expression(key, operator, values)]}]);
        assert_eq!(matches(&term, &labelled()), expected, "{key} {operator} {values:?}");
    }
}

#[test]
fn fields_select_by_the_nodes_name_only() {
    for (key, operator, values, expected) in [
        ("metadata.name", "In", &["machine1"][..], true),
        ("metadata.name", "In", &["machine2"], false),
        ("metadata.name", "In", &["machine1", "machine2"], false),
        ("metadata.name", "NotIn", &["machine2"], true),
        ("metadata.name", "NotIn", &["machine1"], false),
        ("metadata.name", "Exists", &[], false),
        ("metadata.namespace", "In", &["machine1"], false),
        ("metadata.namespace", "NotIn", &["machine1"], true),
    ] {
        let term = json!([{"matchFields": [expression(key, operator, values)]}]);
        assert_eq!(matches(&term, &labelled()), expected, "{key} {operator} {values:?}");
    }
    let nameless = node(&json!({}));
    let term = json!([{"matchFields": [expression("metadata.name", "In", &["machine1"])]}]);
    assert!(matches(&term, &nameless));
}

#[test]
fn terms_are_alternatives_and_their_parts_are_not() {
    let ssd = || expression("disk", "In", &["ssd"]);
    let hdd = || expression("disk", "In", &["hdd"]);
    let here = || expression("metadata.name", "In", &["machine1"]);
    let there = || expression("metadata.name", "In", &["machine2"]);
    for (what, terms, expected) in [
        ("no term", json!([]), false),
        ("an empty term", json!([{}]), false),
        ("an empty term and one that holds", json!([{}, {"matchExpressions": [ssd()]}]), true),
        (
            "the second holds",
            json!([{"matchExpressions": [hdd()]}, {"matchExpressions": [ssd()]}]),
            true,
        ),
        ("one of two parts", json!([{"matchExpressions": [ssd(), hdd()]}]), false),
        ("label and field", json!([{"matchExpressions": [ssd()], "matchFields": [here()]}]), true),
        (
            "label, not field",
            json!([{"matchExpressions": [ssd()], "matchFields": [there()]}]),
            false,
        ),
    ] {
        assert_eq!(matches(&terms, &labelled()), expected, "{what}");
    }
}

#[test]
fn the_node_selector_holds_beside_the_affinity() {
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [expression("zone", "In", &["a"])]},
    ]});
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    });
    for (selector, expected) in [
        (json!({}), true),
        (json!({"disk": "ssd"}), true),
        (json!({"disk": "ssd", "empty": ""}), true),
        (json!({"disk": "ssd", "absent": ""}), false),
        (json!({"disk": "hdd"}), false),
    ] {
        let spec = json!({"containers": [], "nodeSelector": selector, "affinity": affinity});
        let found = failures(&pod("u", &spec), &labelled(), &[]);
        assert_eq!(found.is_empty(), expected, "{selector}");
    }
}

#[test]
fn preferences_keep_no_pod_out() {
    let preferred = json!([{"weight": 1, "preference": {
        "matchExpressions": [expression("disk", "In", &["hdd"])],
    }}]);
    let affinity = json!({
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    });
    let spec = json!({"containers": [], "affinity": affinity});
    assert_eq!(failures(&pod("u", &spec), &labelled(), &[]), []);
}
