use serde_json::{Value, json};

use super::{admit_update, admit_write, may, node_of};
use crate::access::User;
use crate::kinds::called;
use crate::request::Right;
use crate::store::{Key, Store};
use crate::target::{Query, Target};

fn store() -> Store {
    let mut store = Store::new();
    let pods = called("pods").unwrap();
    for (name, node) in [("mine", "n1"), ("theirs", "n2")] {
        let spec = json!({"nodeName": node, "volumes": [
            {"name": "v", "secret": {"secretName": format!("secret-of-{name}")}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": format!("map-of-{name}")}}]}},
        ]});
        let pod =
            json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec});
        store.put(Key::new(pods, Some("default"), name), pod);
    }
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid"}});
    store.put(Key::new(called("nodes").unwrap(), None, "n1"), node);
    store
}

fn allowed(verb: &str, path: &str, query: &str) -> bool {
    let target = Target::of_text(path).unwrap();
    may(&store(), "n1", &right(verb, &target), &target, &Query::of(Some(query))).is_ok()
}

fn right(verb: &str, target: &Target) -> Right {
    Right {
        verb: verb.to_owned(),
        group: target.kind.group.to_owned(),
        resource: target.kind.plural.to_owned(),
        subresource: target.subresource.clone().unwrap_or_default(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone().unwrap_or_default(),
    }
}

fn written(verb: &str, path: &str, body: &Value) -> Result<(), String> {
    let target = Target::of_text(path).unwrap();
    admit_write(&store(), "n1", &right(verb, &target), &target, body)
}

#[test]
fn a_node_is_known_by_its_name_and_its_group() {
    assert_eq!(node_of(&User::new("system:node:n1", &["system:nodes"])), Some("n1"));
    assert_eq!(node_of(&User::new("system:node:n1", &[])), None);
    assert_eq!(node_of(&User::new("admin", &["system:nodes"])), None);
}

#[test]
fn a_node_reads_its_own_pods_and_what_they_name_and_nothing_else() {
    for (verb, path, query, expected) in [
        ("list", "pods", "fieldSelector=spec.nodeName%3Dn1", true),
        ("watch", "pods", "fieldSelector=spec.nodeName%3Dn2", false),
        ("list", "pods", "", false),
        ("get", "pods/default/mine", "", true),
        ("get", "pods/default/theirs", "", false),
        ("get", "pods/default/gone", "", false),
        ("patch", "pods/default/mine", "", false),
        ("patch", "pods/default/mine/status", "", true),
        ("get", "secrets/default/secret-of-mine", "", true),
        ("get", "secrets/default/secret-of-theirs", "", false),
        ("list", "secrets/default", "", false),
        ("get", "configmaps/default/map-of-mine", "", true),
        ("get", "configmaps/default/map-of-theirs", "", false),
        ("get", "nodes/n1", "", true),
        ("get", "nodes/n2", "", false),
        ("delete", "nodes/n1", "", false),
        ("update", "leases/kube-node-lease/n1", "", true),
        ("update", "leases/kube-node-lease/n2", "", false),
        ("update", "leases/default/n1", "", false),
        ("list", "leases/kube-node-lease", "", false),
        ("create", "events.events.k8s.io/default", "", true),
        ("list", "poddisruptionbudgets/default", "", false),
    ] {
        assert_eq!(allowed(verb, path, query), expected, "{verb} {path}?{query}");
    }
}

#[test]
fn a_node_creates_nothing_but_mirror_pods_that_it_owns() {
    let mirror = |owner: Value| {
        json!({
            "metadata": {
                "name": "web-n1", "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n1"},
        })
    };
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": true});
    let mut uncontrolled = owner.clone();
    uncontrolled["controller"] = json!(false);
    let mut stale = owner.clone();
    stale["uid"] = json!("an older node of that name");
    let mut plain = mirror(owner.clone());
    plain["metadata"]["annotations"] = json!({});
    let mut secret = mirror(owner.clone());
    secret["spec"]["volumes"] = json!([{"name": "s", "secret": {"secretName": "s"}}]);
    assert_eq!(written("create", "pods/default", &mirror(owner)), Ok(()));
    for refused in [mirror(uncontrolled), mirror(stale), plain, secret] {
        assert!(written("create", "pods/default", &refused).is_err(), "{refused}");
    }
}

#[test]
fn a_node_deletes_and_evicts_its_own_pods_alone() {
    for path in ["pods/default/mine", "pods/default/theirs"] {
        let mine = path.ends_with("mine");
        assert_eq!(written("delete", path, &Value::Null).is_ok(), mine);
        assert_eq!(written("create", &format!("{path}/eviction"), &json!({})).is_ok(), mine);
    }
}

#[test]
fn a_node_changes_neither_its_taints_nor_the_labels_of_the_cluster() {
    let target = Target::of_text("nodes/n1").unwrap();
    let old = json!({"metadata": {"labels": {}}, "spec": {"taints": []}});
    for (new, expected) in [
        (json!({"spec": {"unschedulable": true}}), true),
        (json!({"spec": {"taints": [{"key": "a"}]}}), false),
        (
            json!({"metadata": {"labels": {"example.com/x": "1", "kubernetes.io/os": "linux"}}}),
            true,
        ),
        (json!({"metadata": {"labels": {"node.kubernetes.io/x": "1"}}}), true),
        (json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}), false),
        (json!({"metadata": {"labels": {"a.node-restriction.kubernetes.io/x": ""}}}), false),
    ] {
        assert_eq!(admit_update("n1", &target, &old, &new).is_ok(), expected, "{new}");
    }
}
