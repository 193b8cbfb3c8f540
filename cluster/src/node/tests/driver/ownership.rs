//! What is ours and what is not, on a server that others write to as well.

use super::*;

fn theirs(server: &ApiServer, patch: &Value) {
    server.patch(NODE, patch).unwrap();
}

/// virtual-kubelet: TestBeforeAnnotationsPreserved.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_there_before_keeps_its_annotations_and_gets_ours() {
    let server = ApiServer::in_memory().unwrap();
    apply(&server, json!({ "annotations": { "theirs": "1" }, "labels": { "theirs": "1" } }));
    let taint_of_theirs = json!([{ "key": "theirs", "effect": "NoSchedule" }]);
    theirs(&server, &json!({ "spec": { "taints": taint_of_theirs } }));
    let mut facts = NodeFacts { taints: vec![taint("ours", "1")], ..facts() };
    facts.annotations.insert("ours".into(), "1".into());
    let agent = Agent::start_with(&server, facts, NodeSettings::default());
    agent.told().await;
    sleep(Duration::from_secs(1)).await;
    let node = there(&server);
    assert_eq!(node["metadata"]["annotations"]["ours"], "1");
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
    assert_eq!(node["metadata"]["annotations"]["theirs"], "1");
    assert_eq!(node["metadata"]["labels"]["theirs"], "1");
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert_eq!((&taints[0]["key"], taints.len()), (&json!("theirs"), 1), "set at a registration");
}

/// As a cloud's controller does once it has initialized the node.
#[tokio::test(start_paused = true)]
async fn a_taint_that_others_take_off_does_not_come_back() {
    let server = ApiServer::in_memory().unwrap();
    let facts = NodeFacts { taints: vec![taint("a", "1"), taint("b", "1")], ..facts() };
    let agent = Agent::start_with(&server, facts.clone(), NodeSettings::default());
    agent.told().await;
    assert_eq!(there(&server)["spec"]["taints"].as_array().unwrap().len(), 2);
    theirs(
        &server,
        &json!({ "spec": { "taints": [{ "$patch": "delete", "key": "a", "effect": "NoSchedule" }] } }),
    );
    theirs(
        &server,
        &json!({ "spec": { "taints": [{ "key": "b", "value": "1", "effect": "NoSchedule" }] } }),
    );
    agent.stop.cancel();
    let agent = Agent::start_with(&server, facts, NodeSettings::default());
    agent.told().await;
    sleep(Duration::from_secs(600)).await;
    let taints = there(&server)["spec"]["taints"].clone();
    assert_eq!((&taints[0]["key"], taints.as_array().unwrap().len()), (&json!("b"), 1));
}

/// virtual-kubelet: TestManualConditionsPreserved.
#[tokio::test(start_paused = true)]
async fn a_foreign_condition_survives_and_an_annotation_that_we_drop_disappears() {
    let (server, agent) = ready().await;
    agent.facts.send_modify(|facts| drop(facts.annotations.insert("ours".into(), "1".into())));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(there(&server)["metadata"]["annotations"]["ours"], "1");
    theirs(
        &server,
        &json!({ "metadata": { "annotations": { "theirs": "1" } },
            "status": { "conditions": [{ "type": "Theirs", "status": "True" }] } }),
    );
    agent.facts.send_modify(|facts| facts.annotations.clear());
    agent.handle.set_ready(Err("why".into()));
    agent.told().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(condition(&server, "Theirs")["status"], "True");
    let annotations = there(&server)["metadata"]["annotations"].clone();
    assert_eq!((annotations.get("ours"), &annotations["theirs"]), (None, &json!("1")));
    assert_eq!(ready_is(&server).1, "why");
}

/// What one agent applied, the next one takes off: the Node object remembers it.
#[tokio::test(start_paused = true)]
async fn a_restarted_agent_takes_off_what_the_earlier_one_had_put_there() {
    let server = ApiServer::in_memory().unwrap();
    let mut first = facts();
    first.labels.insert("ours".into(), "1".into());
    first.capacity.insert("example.com/ours".into(), Quantity("1".into()));
    let agent = Agent::start_with(&server, first, NodeSettings::default());
    agent.told().await;
    agent.stop.cancel();
    theirs(
        &server,
        &json!({ "metadata": { "labels": { "theirs": "1" } },
            "status": { "capacity": { "example.com/theirs": "1" } } }),
    );
    let _agent = Agent::ready(&server).await;
    sleep(Duration::from_secs(1)).await;
    let node = there(&server);
    let (labels, capacity) = (&node["metadata"]["labels"], &node["status"]["capacity"]);
    assert_eq!((labels.get("ours"), &labels["theirs"]), (None, &json!("1")));
    assert_eq!(capacity.get("example.com/ours"), None);
    assert_eq!(capacity["example.com/theirs"], "1");
}

/// virtual-kubelet#956: the control plane had marked the node, and nothing marked it back.
#[tokio::test(start_paused = true)]
async fn what_others_write_over_our_conditions_is_written_back_at_once() {
    let (server, _agent) = ready().await;
    sleep(Duration::from_secs(1)).await;
    let unknown = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status." });
    theirs(&server, &json!({ "status": { "conditions": [unknown] } }));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&server), ("True".into(), "kubelet is posting ready status".into()));
}

#[tokio::test(start_paused = true)]
async fn a_dispute_with_another_writer_is_carried_on_ever_more_slowly() {
    let (server, _agent) = ready().await;
    let before = server.count("patch", "nodes/status");
    for _ in 0..250 {
        theirs(
            &server,
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
        );
        sleep(Duration::from_millis(20)).await;
    }
    let writes = server.count("patch", "nodes/status") - before;
    assert!((1..=8).contains(&writes), "{writes} writes in 5 s");
}

fn addresses(all: &[(&str, &str)]) -> Value {
    let all = all.iter().map(|(kind, address)| json!({ "type": kind, "address": address }));
    json!({ "status": { "addresses": all.collect::<Vec<_>>() } })
}

/// A cloud's controller writes all addresses of the instance every five minutes: pkg/kubelet/nodestatus/setters.go.
#[tokio::test(start_paused = true)]
async fn addresses_that_a_cloud_adds_stay_and_those_that_were_ours_go() {
    let (server, agent) = ready().await;
    let all = [("Hostname", "n1"), ("InternalIP", "10.0.0.1"), ("ExternalIP", "203.0.113.1")];
    theirs(&server, &addresses(&all));
    let before = server.count("patch", "nodes/status");
    sleep(Duration::from_secs(60)).await;
    let kept = there(&server)["status"]["addresses"].clone();
    assert_eq!(kept.as_array().unwrap().len(), 3, "{kept}");
    assert_eq!(server.count("patch", "nodes/status"), before);
    agent.facts.send_modify(|facts| facts.addresses[0].address = "10.0.0.2".into());
    sleep(Duration::from_secs(1)).await;
    let addresses = there(&server)["status"]["addresses"].clone();
    let is = [("InternalIP", "10.0.0.2"), ("Hostname", "n1"), ("ExternalIP", "203.0.113.1")];
    assert_eq!(addresses, json!(is.map(|(kind, ip)| json!({ "type": kind, "address": ip }))));
}

#[tokio::test(start_paused = true)]
async fn a_dispute_over_one_field_does_not_delay_the_conditions() {
    let (server, _agent) = ready().await;
    sleep(Duration::from_secs(1)).await;
    for _ in 0..1500 {
        theirs(&server, &addresses(&[("ExternalIP", "203.0.113.1")]));
        sleep(Duration::from_secs(1)).await;
    }
    let unknown = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
    theirs(&server, &json!({ "status": { "conditions": [unknown] } }));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(ready_is(&server).0, "True");
    let internal = |one: &Value| one["type"] == "InternalIP";
    let addresses = there(&server)["status"]["addresses"].clone();
    assert!(
        !addresses.as_array().unwrap().iter().any(internal),
        "the dispute goes on: {addresses}"
    );
}

/// Beside a kubelet, too, and by the next agent.
#[tokio::test(start_paused = true)]
async fn a_condition_that_the_facts_drop_is_taken_off_the_node_of_a_kubelet() {
    for restarts in [false, true] {
        let server = ApiServer::in_memory().unwrap();
        apply(&server, json!({ "labels": { "theirs": "1" } }));
        theirs(
            &server,
            &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
        );
        let own = super::super::super::conditions::condition("Own", true, "Why", "because");
        let facts = NodeFacts { conditions: vec![own], ..facts() };
        let mut agent = Agent::start_with(&server, facts, NodeSettings::beside_kubelet());
        agent.handle.set_ready(Ok(()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(condition(&server, "Own")["status"], "True");
        if restarts {
            agent.stop.cancel();
            let facts = super::super::facts();
            agent = Agent::start_with(&server, facts, NodeSettings::beside_kubelet());
        } else {
            agent.facts.send_modify(|facts| facts.conditions.clear());
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(condition(&server, "Own"), Value::Null);
        assert_eq!(condition(&server, "Ready")["status"], "True");
        let node = there(&server);
        assert_eq!(node["metadata"]["labels"], json!({ "theirs": "1" }));
        assert_eq!(node["status"].get("addresses"), None);
        drop(agent);
    }
}

/// virtual-kubelet: TestUpdateNodeStatus.
#[tokio::test(start_paused = true)]
async fn the_status_is_as_it_has_to_be_before_and_after_and_not_written_to_a_node_that_is_gone() {
    let server = ApiServer::in_memory().unwrap();
    let mut facts = facts();
    facts.addresses.push(NodeAddress { type_: "InternalIP".into(), address: "fd00::1".into() });
    let agent = Agent::start_with(&server, facts, NodeSettings::default());
    agent.told().await;
    let is = |cpu: &str, addresses: usize| {
        let status = there(&server)["status"].clone();
        assert_eq!(status["capacity"]["cpu"], cpu);
        assert_eq!(status["addresses"].as_array().unwrap().len(), addresses);
    };
    is("2", 2);
    agent.facts.send_modify(|facts| {
        facts.addresses.truncate(1);
        facts.capacity.get_mut("cpu").unwrap().0 = "3".into();
    });
    sleep(Duration::from_secs(2)).await;
    is("3", 1);
    server.remove(NODE);
    sleep(Duration::from_secs(1)).await;
    assert!(agent.handle.state().borrow().deleted);
    server.forget_requests();
    agent.handle.set_ready(Err("why".into()));
    let told = agent.handle.flush(Instant::now() + Duration::from_secs(1)).await;
    assert_eq!(told, Ok(()), "there is no Node object to write it to");
    assert_eq!(server.count("patch", "*") + server.count("create", "nodes"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_write_or_delete_is_held_on_to() {
    let (server, agent) = ready().await;
    sleep(Duration::from_secs(1)).await;
    server.patch(LEASE, &json!({ "spec": { "holderIdentity": "somebody" } })).unwrap();
    sleep(Duration::from_secs(11)).await;
    assert_eq!(server.get(LEASE).unwrap()["spec"]["holderIdentity"], "n1");
    server.remove(LEASE);
    sleep(Duration::from_secs(11)).await;
    assert!(server.get(LEASE).is_some());
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
}
