//! TestGeneralPredicates.

use super::*;

struct Row {
    what: &'static str,
    pod: Pod,
    others: Vec<Pod>,
    node: NodeView,
    expected: Vec<AdmissionFailure>,
}

fn row(what: &'static str, pod: Pod, expected: Vec<AdmissionFailure>) -> Row {
    Row { what, pod, others: vec![], node: machine1(), expected }
}

fn tainted(key: &str, effect: &str) -> NodeView {
    let taints = json!([{"key": "foo", "effect": "NoSchedule"}, {"key": key, "effect": effect}]);
    node(&json!({"metadata": {"name": "machine1"}, "spec": {"taints": taints}}))
}

fn labelled() -> NodeView {
    node(&json!({"metadata": {"name": "machine1", "labels": {"foo": "bar"}}}))
}

fn wants_foo(node_name: Option<&str>) -> Pod {
    let terms = json!([{"matchExpressions": [{"key": "foo", "operator": "Exists"}]}]);
    let required = json!({"nodeSelectorTerms": terms});
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    });
    let spec = json!({"containers": [], "affinity": affinity, "nodeName": node_name});
    static_pod("u", &spec)
}

fn empty() -> Value {
    json!({"containers": []})
}

fn on_port(uid: &str, port: i32) -> Pod {
    let ports = json!([{"containerPort": 0, "hostPort": port}]);
    pod(uid, &json!({"containers": [{"name": "c", "ports": ports}]}))
}

fn rows() -> Vec<Row> {
    let affinity = AdmissionFailure::NODE_AFFINITY;
    let name = AdmissionFailure::NODE_NAME;
    let tolerations = json!([{"key": "foo"}, {"key": "bar"}]);
    vec![
        Row {
            others: vec![pod("o", &asks(&json!({"cpu": "9m", "memory": "19"})))],
            ..row("no resources/port/host requested always fits", pod("u", &empty()), vec![])
        },
        Row {
            others: vec![pod("o", &asks(&json!({"cpu": "5m", "memory": "19"})))],
            ..row(
                "not enough cpu and memory resource",
                pod("u", &asks(&json!({"cpu": "8m", "memory": "10"}))),
                vec![insufficient("cpu", 8, 5, 10), insufficient("memory", 10, 19, 20)],
            )
        },
        row(
            "host not match",
            pod("u", &json!({"containers": [], "nodeName": "machine2"})),
            vec![name.clone()],
        ),
        Row {
            others: vec![on_port("o", 123)],
            ..row("hostport conflict", on_port("u", 123), vec![AdmissionFailure::NODE_PORTS])
        },
        Row {
            node: tainted("bar", "NoExecute"),
            ..row(
                "taint/toleration match",
                pod("u", &json!({"containers": [], "tolerations": tolerations})),
                vec![],
            )
        },
        Row {
            node: tainted("foo", "NoSchedule"),
            ..row("NoSchedule taint/toleration not match", pod("u", &empty()), vec![])
        },
        Row {
            node: tainted("bar", "NoExecute"),
            ..row(
                "NoExecute taint/toleration not match",
                pod("u", &empty()),
                vec![AdmissionFailure::TAINT_TOLERATION],
            )
        },
        Row {
            node: tainted("baz", "PreferNoSchedule"),
            ..row("PreferNoSchedule taint/toleration not match", pod("u", &empty()), vec![])
        },
        Row {
            node: tainted("bar", "NoExecute"),
            ..row("static pods ignore taints", static_pod("u", &empty()), vec![])
        },
        row("node affinity failure", wants_foo(None), vec![affinity.clone()]),
        row(
            "node affinity failure and node name doesn't match",
            wants_foo(Some("some-node-name")),
            vec![affinity, name],
        ),
        Row { node: labelled(), ..row("node affinity", wants_foo(None), vec![]) },
    ]
}

// A node that was read anew has no row: who reads it does so before admission. The kubelet's later rows, on skipping
// checks for pods that already run, have no counterpart here: the intake does not run admission for a pod that the
// runtime shows running.
#[test]
fn every_failure_is_found_in_order() {
    for Row { what, pod, others, node, expected } in rows() {
        let recording = Recording::default();
        let fit = NodeFit::new(Arc::new(node)).with_preemption(Arc::new(recording.clone()));
        let others = OtherPods::new(move || others.clone());
        let answer = fit.admit(&pod, &others);
        let verdict = fit.decide(&pod, &others);
        assert_eq!(matches!(verdict, Verdict::Admitted), answer.is_ok(), "{what}");
        assert_eq!(*recording.0.lock().unwrap(), expected, "{what}");
        let first = expected.first().map(AdmissionFailure::reason);
        let reason = answer.err().map(|rejection| rejection.reason.to_string());
        assert_eq!(reason.as_deref(), first.as_deref(), "{what}: the first is reported");
    }
}

#[test]
fn all_kinds_of_failures_come_in_the_order_of_the_reference() {
    let mut node = tainted("bar", "NoExecute");
    node.allocatable = [("pods", "1"), ("example.com/a", "1"), ("cpu", "1m")].into_iter().collect();
    let spec = json!({
        "nodeName": "elsewhere",
        "nodeSelector": {"disk": "ssd"},
        "containers": [{
            "name": "c",
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {
                "hugepages-2Mi": "4Mi", "example.com/a": "2", "ephemeral-storage": "1",
                "memory": "1Ki", "cpu": "1",
            }},
        }],
    });
    let found = failures(&pod("u", &spec), &node, &[on_port("o", 80)]);
    let reasons: Vec<_> = found.iter().map(|f| f.reason().into_owned()).collect();
    let expected = [
        "OutOfpods",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfexample.com/a",
        "OutOfhugepages-2Mi",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
    ];
    assert_eq!(reasons, expected);
}
