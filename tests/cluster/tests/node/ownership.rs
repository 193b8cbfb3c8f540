//! What is ours and what is not, on a server that merges as the real one does.

use serde_json::json;
use winddown_apiserver::ApiServer;
use winddown_cluster::node::CORDONED_BY;

use crate::node::harness::*;

/// virtual-kubelet: TestBeforeAnnotationsPreserved.
#[tokio::test]
async fn a_node_that_was_there_before_keeps_its_annotations_and_gets_ours() {
    let server = ApiServer::start().await.unwrap();
    server
        .apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1",
            "annotations": { "theirs": "1" }, "labels": { "theirs": "1" } },
            "spec": { "taints": [{ "key": "theirs", "effect": "NoSchedule" }] } }))
        .unwrap();
    let mut facts = facts();
    facts.annotations.insert("ours".into(), "1".into());
    facts.taints =
        vec![serde_json::from_value(json!({ "key": "ours", "effect": "NoExecute" })).unwrap()];
    let agent = Agent::start_with(&server, facts, settings()).await;
    until(&server, "all of ours", |node| {
        node["metadata"]["annotations"]["ours"] == "1"
            && node["spec"]["taints"].as_array().map(Vec::len) == Some(2)
            && node["status"]["capacity"]["cpu"] == "2"
    })
    .await;
    let node = node(&server);
    assert_eq!(node["metadata"]["annotations"]["theirs"], "1");
    assert_eq!(node["metadata"]["labels"]["theirs"], "1");
    assert_eq!(node["spec"]["taints"][0]["key"], "theirs");
    agent.stop().await;
}

/// virtual-kubelet: TestManualConditionsPreserved.
#[tokio::test]
async fn a_foreign_condition_survives_and_an_annotation_that_we_drop_disappears() {
    let server = ApiServer::start().await.unwrap();
    let mut first = facts();
    first.annotations.insert("ours".into(), "1".into());
    let agent = Agent::start_with(&server, first, settings()).await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let theirs = json!({ "metadata": { "annotations": { "theirs": "1" } },
        "status": { "conditions": [{ "type": "Theirs", "status": "True" }] } });
    server.patch(NODE, &theirs).unwrap();
    agent.facts.send_modify(|facts| facts.annotations.clear());
    until(&server, "ours is gone", |node| node["metadata"]["annotations"].get("ours").is_none())
        .await;
    agent.handle.set_ready(Err("why".into()));
    agent.told().await;
    let has = node(&server);
    assert_eq!(condition(&has, "Theirs")["status"], "True");
    assert_eq!(has["metadata"]["annotations"]["theirs"], "1");
    assert_eq!(condition(&has, "Ready")["message"], "why");
    agent.stop().await;
}

/// What one agent applied, the next one takes off: the Node object remembers it.
#[tokio::test]
async fn a_restarted_agent_takes_off_what_the_earlier_one_had_put_there() {
    let server = ApiServer::start().await.unwrap();
    let mut first = facts();
    first.labels.insert("ours".into(), "1".into());
    first.capacity.insert(
        "example.com/ours".into(),
        k8s_openapi::apimachinery::pkg::api::resource::Quantity("1".into()),
    );
    let agent = Agent::start_with(&server, first, settings()).await;
    agent.told().await;
    agent.stop().await;
    let theirs = json!({ "metadata": { "labels": { "theirs": "1" } },
        "status": { "capacity": { "example.com/theirs": "1" } } });
    server.patch(NODE, &theirs).unwrap();
    let agent = Agent::ready(&server).await;
    until(&server, "ours is gone", |node| {
        node["metadata"]["labels"].get("ours").is_none()
            && node["status"]["capacity"].get("example.com/ours").is_none()
    })
    .await;
    let has = node(&server);
    assert_eq!(has["metadata"]["labels"]["theirs"], "1");
    assert_eq!(has["status"]["capacity"]["example.com/theirs"], "1");
    agent.stop().await;
}

/// virtual-kubelet#956: the control plane had marked the node, and nothing marked it back.
#[tokio::test]
async fn what_others_write_over_our_conditions_is_written_back_at_once() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown",
        "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status." }] } });
    server.patch(NODE, &unknown).unwrap();
    until(&server, "it is ready again", |node| {
        let ready = condition(node, "Ready");
        ready["status"] == "True" && ready["message"] == "kubelet is posting ready status"
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_dispute_with_another_writer_is_carried_on_ever_more_slowly() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.forget_requests();
    let theirs = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while tokio::time::Instant::now() < end {
        server.patch(NODE, &theirs).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let writes = server.requests().iter().filter(|one| one.right.subresource == "status").count();
    assert!((1..=8).contains(&writes), "{writes} writes in 5 s");
    agent.stop().await;
}

#[tokio::test]
async fn a_person_who_cordons_and_uncordons_while_the_node_goes_down_has_the_last_word() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(node(&server)["spec"]["unschedulable"], true);
    let mark = |node: &serde_json::Value| {
        node["metadata"]["annotations"][CORDONED_BY].as_str().unwrap_or_default().to_owned()
    };
    assert!(mark(&node(&server)).contains("boot-1"));
    server.patch(NODE, &json!({ "spec": { "unschedulable": null } })).unwrap();
    until(&server, "it is noted", |node| mark(node).contains("released")).await;
    server.patch(NODE, &json!({ "spec": { "unschedulable": true } })).unwrap();
    agent.handle.set_shutting_down(false);
    agent.told().await;
    let has = node(&server);
    assert_eq!(has["spec"]["unschedulable"], true, "the person's cordon stays");
    assert_eq!(mark(&has), "");
    agent.stop().await;
}

#[tokio::test]
async fn after_a_boot_our_own_cordon_is_undone_once_the_node_is_ready() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    agent.stop().await;
    let mut booted = facts();
    booted.info.boot_id = "boot-2".into();
    let agent = Agent::start_with(&server, booted, settings()).await;
    agent.told().await;
    assert_eq!(node(&server)["spec"]["unschedulable"], true);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let has = node(&server);
    assert!(has["spec"].get("unschedulable").is_none_or(|is| is != true));
    assert_eq!(condition(&has, "GracefulNodeShutdownInProgress")["status"], "False");
    agent.stop().await;
}
