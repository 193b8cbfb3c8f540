//! A shutdown with an API server that is not there.

use std::time::Duration;

use tokio::time::Instant;
use winddown_apiserver::{ApiServer, Fault};
use winddown_cluster::node::NotDelivered;

use crate::node::harness::*;

#[tokio::test]
async fn a_shutdown_that_begins_without_the_server_is_told_when_it_is_back() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.cut_off().await.unwrap();
    agent.handle.set_shutting_down(true);
    let told = agent.handle.flush(Instant::now() + Duration::from_millis(300)).await;
    assert_eq!(told, Err(NotDelivered));
    server.come_back().await.unwrap();
    agent.told().await;
    let has = node(&server);
    assert_eq!(condition(&has, "Ready")["message"], "node is shutting down");
    assert_eq!(has["spec"]["unschedulable"], true);
    agent.stop().await;
}

#[tokio::test]
async fn a_shutdown_gets_through_while_the_server_refuses_conflicts_and_loses_answers() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.fault(Fault::on("patch", "nodes").times(1).status(409).reason("Conflict"));
    server.fault(Fault::on("patch", "nodes/status").times(1).status(500));
    server.fault(Fault::on("patch", "nodes/status").times(1).lose_answer());
    server.fault(Fault::on("patch", "nodes").times(1).close());
    agent.handle.set_shutting_down(true);
    agent.told().await;
    let has = node(&server);
    assert_eq!(condition(&has, "GracefulNodeShutdownInProgress")["status"], "True");
    assert_eq!(condition(&has, "DrainInProgress")["status"], "True");
    assert_eq!(has["spec"]["unschedulable"], true);
    agent.stop().await;
}

#[tokio::test]
async fn a_lease_that_others_write_or_delete_is_held_on_to() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.until("the lease", |all| all.get(LEASE)).await.unwrap();
    server.patch(LEASE, &serde_json::json!({ "spec": { "holderIdentity": "somebody" } })).unwrap();
    let taken_back = server.until("it is ours again", |all| {
        (all.get(LEASE)?["spec"]["holderIdentity"] == "n1").then_some(())
    });
    taken_back.await.unwrap();
    server.remove(LEASE);
    server.until("it is there again", |all| all.get(LEASE)).await.unwrap();
    assert_eq!(agent.handle.state().borrow().lease_problem, None);
    agent.stop().await;
}

/// A node with a node's rights, and no more: its status, its lease and its cordon are its own affair,
/// its taints are not once it is registered.
#[tokio::test]
async fn a_server_that_keeps_nodes_from_their_taints_gets_everything_else() {
    let server = ApiServer::start().await.unwrap();
    server.restrict_nodes(true);
    let hour = Duration::from_secs(3600);
    let identity = server.new_identity("system:node:n1", &["system:nodes"], hour).unwrap();
    let agent = Agent::start_as(&server.kubeconfig_of(&identity), facts(), settings()).await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    server.until("the lease", |all| all.get(LEASE)).await.unwrap();
    agent.facts.send_modify(|facts| {
        facts.labels.insert("first".into(), "1".into());
        let taint = serde_json::json!({ "key": "a", "effect": "NoSchedule" });
        facts.taints = vec![serde_json::from_value(taint).unwrap()];
        facts.capacity.get_mut("cpu").unwrap().0 = "8".into();
    });
    until(&server, "labels and resources", |node| {
        node["metadata"]["labels"]["first"] == "1" && node["status"]["capacity"]["cpu"] == "8"
    })
    .await;
    let mut state = agent.handle.state();
    tokio::time::timeout(LONG, state.wait_for(|state| state.refused.is_some()))
        .await
        .unwrap()
        .unwrap();
    drop(state);
    agent.handle.set_ready(Err("why".into()));
    until(&server, "the status", |node| condition(node, "Ready")["message"] == "why").await;
    assert!(node(&server)["spec"].get("taints").is_none());
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(node(&server)["spec"]["unschedulable"], true);
    agent.stop().await;
}
