//! What is written for each difference.

use serde_json::json;

use super::super::conditions::{NodeHealth, stamp, wanted};
use super::super::managed_keys::LAST_APPLIED;
use super::super::patch;
use super::*;

/// The node as it is after this agent registered it with `facts`.
fn registered(facts: &NodeFacts) -> Value {
    let node = facts.to_node(NAME, wanted(&NodeHealth::default(), &[]), &time(0));
    let mut node = serde_json::to_value(node).unwrap();
    node["metadata"]["uid"] = "u1".into();
    node["metadata"]["resourceVersion"] = "7".into();
    node
}

fn status(facts: &NodeFacts, server: &Value, heartbeat: bool) -> Option<Value> {
    let server = node(server.clone());
    let conditions = server.status.as_ref().and_then(|status| status.conditions.as_deref());
    let mut all = wanted(&NodeHealth::default(), conditions.unwrap_or_default());
    all.extend(facts.conditions.clone());
    patch::status(facts, &all, &server, &time(60), heartbeat)
}

fn record(node: &Value) -> Value {
    serde_json::from_str(node["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap()).unwrap()
}

#[test]
fn a_node_that_is_as_it_has_to_be_gets_no_patch() {
    let facts = NodeFacts { taints: vec![taint("a", "1")], ..facts() };
    let server = registered(&facts);
    assert_eq!(patch::metadata(&facts, &node(server.clone())), None);
    assert_eq!(status(&facts, &server, false), None);
}

#[test]
fn a_heartbeat_writes_all_conditions_with_the_uid_and_nothing_else() {
    let facts = facts();
    let server = registered(&facts);
    let patch = status(&facts, &server, true).unwrap();
    assert_eq!(patch["metadata"], json!({ "uid": "u1" }));
    let status = patch["status"].as_object().unwrap();
    assert_eq!(status.keys().collect::<Vec<_>>(), ["conditions"]);
    for condition in status["conditions"].as_array().unwrap() {
        assert_eq!(condition["lastHeartbeatTime"], second(60).to_string());
        assert_eq!(condition["lastTransitionTime"], second(0).to_string());
    }
}

#[test]
fn amounts_are_compared_by_value_and_those_of_others_are_left_alone() {
    let facts = facts();
    let mut server = registered(&facts);
    server["status"]["capacity"]["cpu"] = "2000m".into();
    server["status"]["capacity"]["example.com/gpu"] = "4".into();
    assert_eq!(status(&facts, &server, false), None);
    server["status"]["capacity"]["cpu"] = "3".into();
    let patch = status(&facts, &server, false).unwrap();
    assert_eq!(patch["status"]["capacity"], json!({ "cpu": "2" }));
}

#[test]
fn what_was_ours_and_is_no_more_is_taken_off_in_the_request_that_forgets_it() {
    let mut facts = facts();
    facts.labels.insert("ours".into(), "1".into());
    facts.annotations.insert("note".into(), "1".into());
    facts.capacity.insert("example.com/thing".into(), Quantity("1".into()));
    facts.conditions = vec![stamp(vec![condition("Extra")], &[], &time(0)).remove(0)];
    let mut server = registered(&facts);
    merge(&mut server["metadata"]["labels"], &json!({ "theirs": "1" }));
    server["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "Extra", "status": "True" }));

    facts.labels.remove("ours");
    facts.annotations.clear();
    facts.capacity.remove("example.com/thing");
    facts.conditions.clear();
    let patch = patch::metadata(&facts, &node(server.clone())).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ "ours": null }));
    assert_eq!(patch["metadata"]["annotations"]["note"], Value::Null);
    merge(&mut server, &patch);
    assert_eq!(record(&server)["labels"], json!(["kubernetes.io/hostname"]));
    assert_eq!(record(&server)["conditions"], json!(["Extra"]), "that is the status's to forget");

    let patch = status(&facts, &server, false).unwrap();
    assert_eq!(patch["status"]["capacity"], json!({ "example.com/thing": null }));
    let last = patch["status"]["conditions"].as_array().unwrap().last().cloned();
    assert_eq!(last.unwrap(), json!({ "type": "Extra", "$patch": "delete" }));
    merge(&mut server, &patch);
    assert_eq!(record(&server).get("conditions"), None);
    assert_eq!(status(&facts, &server, false), None);
    assert_eq!(server["metadata"]["labels"]["theirs"], "1");
}

fn condition(kind: &str) -> k8s_openapi::api::core::v1::NodeCondition {
    serde_json::from_value(json!({ "type": kind, "status": "True" })).unwrap()
}

#[test]
fn addresses_replace_the_list_so_that_two_of_one_type_can_be() {
    let mut facts = facts();
    let server = registered(&facts);
    facts.addresses.push(NodeAddress { type_: "InternalIP".into(), address: "fd00::1".into() });
    let patch = status(&facts, &server, false).unwrap();
    let addresses = patch["status"]["addresses"].as_array().unwrap();
    assert_eq!(addresses.len(), 3);
    assert_eq!(addresses[2], json!({ "$patch": "replace" }));
}

#[test]
fn a_port_that_is_no_more_is_taken_off() {
    let listening = NodeFacts { port: Some(10250), ..facts() };
    let mut server = registered(&facts());
    let port = |port: i32| json!({ "kubeletEndpoint": { "Port": port } });
    server["status"]["daemonEndpoints"] = port(0);
    assert_eq!(status(&facts(), &server, false), None);
    for (facts, wanted) in [(&listening, 10250), (&facts(), 0)] {
        let patch = status(facts, &server, false).unwrap();
        assert_eq!(patch["status"]["daemonEndpoints"], port(wanted));
        merge(&mut server, &patch);
        assert_eq!(status(facts, &server, false), None);
    }
}

#[test]
fn features_that_the_node_declares_are_told_with_the_rest_and_an_older_server_is_not_told_for_ever()
{
    let names = ["ExtendWebSocketsToKubelet".to_owned()];
    let declaring = NodeFacts { declared_features: names.to_vec(), ..facts() };
    let mut server = registered(&facts());
    for (facts, wanted) in [(&declaring, &names[..]), (&facts(), &[])] {
        assert_eq!(status(facts, &server, false), None);
        let patch = status(facts, &server, true).unwrap();
        assert_eq!(patch["status"]["declaredFeatures"], json!(wanted));
        merge(&mut server, &patch);
        assert!(status(facts, &server, true).unwrap()["status"].get("declaredFeatures").is_none());
    }
}

#[test]
fn a_record_that_cannot_be_read_claims_nothing_and_is_written_anew() {
    let facts = facts();
    for bad in ["", "{", "[1]", r#"{"labels": 3}"#] {
        let mut server = registered(&facts);
        server["metadata"]["annotations"][LAST_APPLIED] = bad.into();
        server["metadata"]["labels"]["theirs"] = "1".into();
        let patch = patch::metadata(&facts, &node(server.clone())).unwrap();
        merge(&mut server, &patch);
        assert_eq!(server["metadata"]["labels"]["theirs"], "1", "{bad}");
        assert_eq!(record(&server)["labels"], json!(["kubernetes.io/hostname"]));
    }
}

#[test]
fn facts_cannot_write_the_annotations_that_this_agent_keeps_for_itself() {
    let mut facts = facts();
    let server = registered(&facts);
    facts.annotations.insert(LAST_APPLIED.into(), "mine".into());
    facts.annotations.insert(super::super::CORDONED_BY.into(), "mine".into());
    assert_eq!(patch::metadata(&facts, &node(server)), None);
}
