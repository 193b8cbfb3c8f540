//! TestRemoveMissingExtendedResources, and the arithmetic of the fit.

use super::*;

/// A pod with the same requests in a container and in an init container.
fn asking(requests: &Value, limits: &Value) -> Pod {
    let resources = json!({"requests": requests, "limits": limits});
    let container = json!({"name": "test-container", "resources": resources});
    pod("u", &json!({"containers": [container], "initContainers": [container]}))
}

/// The requests that the fit checks: on a full node, each of them fails.
fn counted(pod: &Pod, allocatable: &Value) -> Vec<String> {
    let mut allocatable = allocatable.clone();
    allocatable["pods"] = json!("10");
    let full = node(&json!({"status": {"allocatable": allocatable}}));
    let names = ["foo.com/bar", "foo.com/baz"];
    let holds: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!("1"))).collect();
    let found = failures(pod, &full, &[super::pod("o", &asks(&Value::Object(holds)))]);
    found.iter().map(|f| f.reason().trim_start_matches("OutOf").to_owned()).collect()
}

#[test]
fn extended_resources_that_the_node_does_not_know_are_left_out() {
    let bar = || json!({"foo.com/bar": "1"});
    let none = || json!({});
    for (what, requests, limits, allocatable, expected) in [
        ("limits do not matter", none(), bar(), json!({"foo.com/baz": "1"}), vec![]),
        ("known to the node", bar(), none(), bar(), vec!["foo.com/bar"]),
        ("unknown to the node", bar(), none(), json!({"foo.com/baz": "1"}), vec![]),
        ("none left of it", bar(), bar(), json!({"foo.com/bar": "0"}), vec!["foo.com/bar"]),
        ("not on the node", bar(), bar(), none(), vec![]),
        // Backed by a claim (DRA): absent, or named after a device class. The kubelet's row with an
        // amount of 0 needs `status.extendedResourceClaimStatus`, which is not read here.
        ("claimed, not on the node", bar(), bar(), none(), vec![]),
        (
            "of a device class",
            json!({"deviceclass.resource.kubernetes.io/bar": "1"}),
            json!({"deviceclass.resource.kubernetes.io/bar": "1"}),
            none(),
            vec![],
        ),
        // Differs from the kubelet: a resource that is neither extended nor on the node does not fit.
        (
            "a huge page size",
            json!({"hugepages-1Gi": "1Gi"}),
            none(),
            none(),
            vec!["hugepages-1Gi"],
        ),
        ("a name without domain", json!({"gpu": "1"}), none(), none(), vec!["gpu"]),
    ] {
        assert_eq!(counted(&asking(&requests, &limits), &allocatable), expected, "{what}");
    }
}

#[test]
fn a_pod_fits_to_the_last_unit() {
    let node = node(&json!({"status": {"allocatable": {
        "pods": "2", "cpu": "1", "memory": "1Gi", "example.com/a": "4",
    }}}));
    let other = |requests: &Value| [pod("o", &asks(requests))];
    let half = json!({"cpu": "500m", "memory": "512Mi", "example.com/a": "2"});
    assert_eq!(failures(&pod("u", &asks(&half)), &node, &other(&half)), []);
    let more = json!({"cpu": "501m", "memory": "536870913", "example.com/a": "3"});
    let expected = [
        insufficient("cpu", 501, 500, 1000),
        insufficient("memory", (512 << 20) + 1, 512 << 20, 1 << 30),
        insufficient("example.com/a", 3, 2, 4),
    ];
    assert_eq!(failures(&pod("u", &asks(&more)), &node, &other(&half)), expected);
}

#[test]
fn a_node_whose_pods_hold_more_than_it_has_lets_in_only_what_asks_for_nothing() {
    let node = node(&json!({"status": {"allocatable": {"pods": "9", "cpu": "1"}}}));
    let heavy = [pod("o", &asks(&json!({"cpu": "9000000000000000"})))];
    let used = 9_000_000_000_000_000_000;
    let found = failures(&pod("u", &asks(&json!({"cpu": "1m"}))), &node, &heavy);
    assert_eq!(found, [insufficient("cpu", 1, used, 1000)]);
    assert_eq!(found[0].shortfall(), Some((&ResourceName::Cpu, used - 999)));
    assert_eq!(failures(&pod("u", &asks(&json!({}))), &node, &heavy), []);
    assert_eq!(failures(&pod("u", &asks(&json!({"cpu": "0"}))), &node, &heavy), []);
}

#[test]
fn the_pod_itself_is_not_among_the_others() {
    let node = node(&json!({"status": {"allocatable": {"pods": "1", "cpu": "1"}}}));
    let own = pod("u", &asks(&json!({"cpu": "1"})));
    assert_eq!(failures(&own, &node, std::slice::from_ref(&own)), []);
    let other = [pod("o", &asks(&json!({})))];
    assert_eq!(failures(&own, &node, &other), [insufficient("pods", 1, 1, 1)]);
}

#[test]
fn texts_are_those_of_the_reference() {
    for (failure, reason, message) in [
        (
            insufficient("cpu", 800, 500, 1000),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 800, used: 500, capacity: 1000",
        ),
        (
            insufficient("memory", 10, 19, 20),
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 10, used: 19, capacity: 20",
        ),
        (
            insufficient("ephemeral-storage", 2, 0, 1),
            "OutOfephemeral-storage",
            "Node didn't have enough resource: ephemeral-storage, requested: 2, used: 0, \
             capacity: 1",
        ),
        (
            insufficient("pods", 1, 110, 110),
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110",
        ),
        (
            insufficient("example.com/gpu", 1, 0, 0),
            "OutOfexample.com/gpu",
            "Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, \
             capacity: 0",
        ),
        (
            AdmissionFailure::NODE_AFFINITY,
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        (
            AdmissionFailure::NODE_NAME,
            "NodeName",
            "Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
        (
            AdmissionFailure::NODE_PORTS,
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        ),
        (
            AdmissionFailure::TAINT_TOLERATION,
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        ),
    ] {
        assert_eq!(failure.reason(), reason);
        assert_eq!(failure.to_string(), message);
        let rejection = failure.rejection();
        assert_eq!((&*rejection.reason, &*rejection.message), (reason, message));
    }
}

#[test]
fn only_what_may_change_by_itself_is_passing() {
    let retryable = |failures: &[AdmissionFailure]| {
        let failures: FitFailures = failures.iter().cloned().collect();
        failures.rejection().map(|rejection| rejection.retryable)
    };
    let full = insufficient("cpu", 1000, 500, 1000);
    let too_small = insufficient("memory", 2, 0, 1);
    assert_eq!(retryable(&[]), None);
    assert_eq!(retryable(std::slice::from_ref(&full)), Some(true));
    assert_eq!(retryable(std::slice::from_ref(&too_small)), Some(false));
    assert_eq!(retryable(&[full.clone(), too_small]), Some(false), "the second one stays");
    assert_eq!(retryable(&[AdmissionFailure::NODE_PORTS, full]), Some(true));
    assert_eq!(retryable(&[AdmissionFailure::NODE_NAME]), Some(false));
}

#[test]
fn an_allocatable_that_cannot_be_read_is_nothing() {
    let allocatable: Allocatable =
        [("cpu", "two"), ("memory", "1Ki"), ("pods", "3")].into_iter().collect();
    assert_eq!(allocatable.get(&ResourceName::Cpu), 0);
    assert!(allocatable.knows(&ResourceName::Cpu));
    assert_eq!(allocatable.get(&ResourceName::Memory), 1024);
    assert!(!allocatable.knows(&ResourceName::EphemeralStorage));
}
