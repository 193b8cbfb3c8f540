//! A node comes, stays, goes and comes back.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use winddown_apiserver::{ApiServer, Fault};

use crate::node::harness::*;

/// virtual-kubelet: E2ERunWithLeases.
#[tokio::test]
async fn a_node_with_a_lease_appears_and_its_lease_belongs_to_it() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    let lease = server.until("the lease", |all| all.get(LEASE)).await.unwrap();
    let owners = lease["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], "n1");
    assert_eq!(owners[0]["uid"], node(&server)["metadata"]["uid"]);
    assert_eq!(lease["spec"]["holderIdentity"], "n1");
    agent.stop().await;
    assert_eq!(condition(&node(&server), "Ready")["status"], "True", "a restart harms nobody");
}

/// virtual-kubelet: E2ERunWithoutLeases.
#[tokio::test]
async fn a_node_without_a_lease_appears_and_its_controller_ends_when_it_is_told() {
    let server = ApiServer::start().await.unwrap();
    let settings = winddown_cluster::node::NodeSettings { lease: None, ..settings() };
    let agent = Agent::start_with(&server, facts(), settings).await;
    agent.told().await;
    assert_eq!(server.get(LEASE), None);
    agent.stop().await;
}

/// virtual-kubelet: TestNodeRun.
#[tokio::test]
async fn leases_are_renewed_with_times_that_grow_and_a_pushed_condition_arrives() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    let mut times = Vec::new();
    while times.len() < 4 {
        let last = times.last().cloned();
        let next = server.until("a renewal", |all| {
            let lease = all.get(LEASE)?;
            let time = lease["spec"]["renewTime"].as_str()?.to_owned();
            (last.as_ref() != Some(&time)).then_some(time)
        });
        times.push(next.await.unwrap());
    }
    assert!(times.is_sorted(), "{times:?}");
    let pushed = json!({ "type": "Extra", "status": "True", "reason": "r", "message": "m" });
    let pushed: k8s_openapi::api::core::v1::NodeCondition = serde_json::from_value(pushed).unwrap();
    agent.facts.send_modify(|facts| facts.conditions.push(pushed));
    until(&server, "the condition", |node| condition(node, "Extra")["status"] == "True").await;
    agent.facts.send_modify(|facts| facts.conditions.clear());
    until(&server, "its end", |node| condition(node, "Extra").is_null()).await;
    agent.stop().await;
}

/// virtual-kubelet: TestUpdateNodeStatus.
#[tokio::test]
async fn the_status_is_as_it_has_to_be_before_and_after_and_not_written_to_a_node_that_is_gone() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    let has = node(&server);
    assert_eq!(has["status"]["capacity"]["cpu"], "2");
    assert_eq!(has["status"]["addresses"].as_array().unwrap().len(), 2);
    agent.facts.send_modify(|facts| {
        facts.addresses.truncate(1);
        facts.capacity.get_mut("cpu").unwrap().0 = "3".into();
    });
    until(&server, "the second status", |node| {
        node["status"]["capacity"]["cpu"] == "3"
            && node["status"]["addresses"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    server.remove(NODE);
    let mut state = agent.handle.state();
    let deleted = state.wait_for(|state| state.deleted);
    drop(tokio::time::timeout(LONG, deleted).await.unwrap().unwrap());
    server.forget_requests();
    agent.handle.set_ready(Err("why".into()));
    let told = agent.handle.flush(Instant::now() + Duration::from_secs(1)).await;
    assert_eq!(told, Ok(()), "there is no Node object to write it to");
    assert_eq!(server.count("patch", "*") + server.count("create", "nodes"), 0);
    agent.stop().await;
}

/// virtual-kubelet: TestNodeCustomUpdateStatusErrorHandler. Whoever embeds the controller sees that the
/// node was deleted, and decides.
#[tokio::test]
async fn a_deleted_node_is_seen_and_the_controller_can_be_ended_for_it() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.remove(NODE);
    let mut state = agent.handle.state();
    tokio::time::timeout(LONG, state.wait_for(|state| state.deleted)).await.unwrap().unwrap();
    drop(state);
    assert!(agent.handle.server_node().borrow().is_none());
    agent.stop().await;
}

/// Mirror pods name the UID of the Node object as their owner's.
#[tokio::test]
async fn a_deleted_node_that_others_create_again_is_known_by_its_new_uid() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.remove(NODE);
    let mut state = agent.handle.state();
    let deleted = state.wait_for(|state| state.deleted && state.uid.is_none());
    drop(tokio::time::timeout(LONG, deleted).await.unwrap().unwrap());
    let again = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    let again = server.apply(again).unwrap();
    let uid = again["metadata"]["uid"].as_str();
    let known = state.wait_for(|state| !state.deleted && state.uid.as_deref() == uid);
    drop(tokio::time::timeout(LONG, known).await.unwrap().unwrap());
    agent.stop().await;
}

#[tokio::test]
async fn a_node_that_is_registered_again_has_a_new_uid_and_a_new_lease() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::start_with(&server, facts(), always()).await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let uid = node(&server)["metadata"]["uid"].clone();
    let lease = server.until("the lease", |all| all.get(LEASE)).await.unwrap();
    server.remove(NODE);
    until(&server, "another node", |node| {
        node["metadata"]["uid"] != uid && condition(node, "Ready")["status"] == "True"
    })
    .await;
    let new_uid = node(&server)["metadata"]["uid"].clone();
    let new_lease = server.until("another lease", |all| {
        let new = all.get(LEASE)?;
        (new["metadata"]["ownerReferences"][0]["uid"] == new_uid).then_some(new)
    });
    assert_ne!(new_lease.await.unwrap()["metadata"]["uid"], lease["metadata"]["uid"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_found_and_not_repeated() {
    let server = ApiServer::start().await.unwrap();
    server.fault(Fault::on("create", "nodes").times(1).lose_answer());
    let agent = Agent::ready(&server).await;
    assert_eq!(server.list("nodes").len(), 1);
    assert_eq!(condition(&node(&server), "Ready")["status"], "True");
    agent.stop().await;
}

#[tokio::test]
async fn the_node_that_admission_looks_at_follows_what_others_write() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    let mut seen = agent.handle.server_node();
    for round in ["1", "2"] {
        server.patch(NODE, &json!({ "metadata": { "labels": { "zone": round } } })).unwrap();
        let label = |node: &k8s_openapi::api::core::v1::Node| {
            node.metadata.labels.as_ref().and_then(|labels| labels.get("zone").cloned())
        };
        let arrived = seen.wait_for(|node| {
            node.as_ref().is_some_and(|node| label(node).as_deref() == Some(round))
        });
        tokio::time::timeout(LONG, arrived).await.unwrap().unwrap();
        // The second time through a watch that had to begin anew.
        server.compact();
        server.drop_watches("nodes");
    }
    agent.stop().await;
}
