use serde_json::{Value, json};

use super::{apply, merge};
use crate::kinds::called;

fn patched(kind: &str, mut object: Value, patch: &Value) -> Value {
    apply(called(kind).unwrap(), &mut object, patch).unwrap();
    object
}

fn refused(kind: &str, mut object: Value, patch: &Value) -> u16 {
    apply(called(kind).unwrap(), &mut object, patch).unwrap_err().code
}

#[test]
fn conditions_are_merged_by_type_and_keep_fields_that_the_patch_leaves_out() {
    let pod = json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True", "reason": "Old", "message": "kept"},
    ]}});
    let patch = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "New"},
        {"type": "DisruptionTarget", "status": "True"},
    ]}});
    assert_eq!(
        patched("pods", pod, &patch)["status"]["conditions"],
        json!([
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "New", "message": "kept"},
            {"type": "DisruptionTarget", "status": "True"},
        ])
    );
}

#[test]
fn container_statuses_are_replaced_as_a_whole() {
    let pod =
        json!({"status": {"containerStatuses": [{"name": "a", "ready": true}, {"name": "b"}]}});
    let patch = json!({"status": {"containerStatuses": [{"name": "a"}]}});
    assert_eq!(patched("pods", pod, &patch)["status"]["containerStatuses"], json!([{"name": "a"}]));
}

#[test]
fn taints_are_replaced_as_a_whole() {
    let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let patch = json!({"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}});
    assert_eq!(
        patched("nodes", node, &patch)["spec"]["taints"],
        json!([{"key": "b", "effect": "NoSchedule"}])
    );
}

#[test]
fn addresses_are_merged_by_type_so_two_of_one_type_become_one() {
    let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    let patch = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "n1"},
    ]}});
    assert_eq!(
        patched("nodes", node, &patch)["status"]["addresses"],
        json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "Hostname", "address": "n1"}])
    );
}

#[test]
fn an_item_is_deleted_by_its_directive() {
    let node = json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}]}});
    let patch = json!({"status": {"conditions": [{"type": "A", "$patch": "delete"}]}});
    assert_eq!(patched("nodes", node, &patch)["status"]["conditions"], json!([{"type": "B"}]));
}

#[test]
fn a_list_is_replaced_by_its_directive() {
    let node = json!({"status": {"addresses": [{"type": "A", "address": "1"}]}});
    let patch = json!({"status": {"addresses": [
        {"$patch": "replace"}, {"type": "B", "address": "2"}, {"type": "B", "address": "3"},
    ]}});
    assert_eq!(
        patched("nodes", node, &patch)["status"]["addresses"],
        json!([{"type": "B", "address": "2"}, {"type": "B", "address": "3"}])
    );
}

#[test]
fn a_map_is_replaced_or_emptied_by_its_directive() {
    let node = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let replace = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}});
    let delete = json!({"metadata": {"labels": {"$patch": "delete"}}});
    assert_eq!(patched("nodes", node.clone(), &replace)["metadata"]["labels"], json!({"c": "3"}));
    assert_eq!(patched("nodes", node, &delete)["metadata"]["labels"], json!({}));
}

#[test]
fn null_takes_a_field_out_and_is_never_stored() {
    let node = json!({"metadata": {"annotations": {"a": "1", "b": "2"}}});
    let patch = json!({
        "metadata": {"annotations": {"a": null, "none": null}},
        "spec": {"unschedulable": null, "providerID": "x"},
    });
    assert_eq!(
        patched("nodes", node, &patch),
        json!({"metadata": {"annotations": {"b": "2"}}, "spec": {"providerID": "x"}})
    );
}

#[test]
fn retained_keys_drop_every_other_key() {
    let pod = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"spec": {"volumes": [
        {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]},
    ]}});
    assert_eq!(
        patched("pods", pod.clone(), &patch)["spec"]["volumes"],
        json!([{"name": "v", "hostPath": {"path": "/x"}}])
    );
    let stray = json!({"spec": {"volumes": [
        {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name"]},
    ]}});
    assert_eq!(refused("pods", pod, &stray), 400);
}

#[test]
fn the_order_directive_orders_and_what_it_does_not_name_keeps_its_place() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}});
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "x"}],
    }});
    assert_eq!(
        patched("pods", pod.clone(), &patch)["spec"]["containers"],
        json!([{"name": "b"}, {"name": "c", "image": "x"}, {"name": "a"}])
    );
    let stray = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "c"}],
    }});
    assert_eq!(refused("pods", pod, &stray), 500);
}

#[test]
fn finalizers_are_added_and_taken_out_one_by_one() {
    let pod = json!({"metadata": {"finalizers": ["a", "b"]}});
    let add = json!({"metadata": {"finalizers": ["b", "c"]}});
    let take = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(
        patched("pods", pod.clone(), &add)["metadata"]["finalizers"],
        json!(["a", "b", "c"])
    );
    assert_eq!(patched("pods", pod, &take)["metadata"]["finalizers"], json!(["b"]));
}

#[test]
fn an_item_without_its_merge_key_is_refused() {
    let pod = json!({"status": {"conditions": [{"type": "A"}]}});
    assert_eq!(refused("pods", pod, &json!({"status": {"conditions": [{"status": "True"}]}})), 500);
}

#[test]
fn env_of_a_container_in_a_daemon_sets_template_is_merged_by_name() {
    let set = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "a", "env": [{"name": "X", "value": "1"}]},
    ]}}}});
    let patch = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "a", "env": [{"name": "Y", "value": "2"}]},
    ]}}}});
    assert_eq!(
        patched("daemonsets", set, &patch)["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}])
    );
}

#[test]
fn a_json_merge_patch_replaces_every_list() {
    let mut pod = json!({"status": {"conditions": [{"type": "A"}], "phase": "Running"}});
    merge(&mut pod, &json!({"status": {"conditions": [{"type": "B"}], "phase": null}}));
    assert_eq!(pod, json!({"status": {"conditions": [{"type": "B"}]}}));
}
