//! The Node object beside a kubelet: only what a shutdown says is written.

use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeCondition, NodeSystemInfo};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::node::{
    CORDONED_BY, NodeController, NodeControllerHandle, NodeFacts, NodeSettings, TAINT, TAINTED_BY,
};

use crate::companion::scene::{NODE, client, wall};

pub(crate) async fn begin(server: &ApiServer, stop: &CancellationToken) -> NodeControllerHandle {
    begin_with(server, Vec::new(), stop).await
}

async fn begin_with(
    server: &ApiServer,
    conditions: Vec<NodeCondition>,
    stop: &CancellationToken,
) -> NodeControllerHandle {
    let info = NodeSystemInfo { boot_id: "boot-1".into(), ..NodeSystemInfo::default() };
    let (_facts, told) = watch::channel(NodeFacts { info, conditions, ..NodeFacts::default() });
    let (controller, handle) = NodeController::builder(client(server).await, NODE, told, wall())
        .settings(NodeSettings::beside_kubelet())
        .build()
        .unwrap();
    tokio::spawn(controller.run(stop.clone()));
    handle.set_ready(Ok(()));
    handle
}

/// A node as its kubelet wrote it in this boot.
pub(crate) fn of_kubelet(boot: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": NODE, "labels": {"theirs": "1"}},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        "status": {
            "nodeInfo": {
                "bootID": boot, "kubeletVersion": "v1.36.2", "architecture": "a",
                "containerRuntimeVersion": "r", "kernelVersion": "k", "kubeProxyVersion": "",
                "machineID": "m", "operatingSystem": "linux", "osImage": "o", "systemUUID": "s",
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "theirs",
            }],
        },
    })
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array().unwrap();
    all.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_shutdown_is_said_and_taken_back_and_nothing_else_of_the_kubelets_is_written() {
    let server = ApiServer::start().await.unwrap();
    server.apply(of_kubelet("boot-1")).unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let handle = begin(&server, &stop).await;
    let soon = || Instant::now() + Duration::from_secs(30);
    handle.flush(soon()).await.unwrap();
    assert_eq!(server.count("patch", "*"), 0);

    handle.set_shutting_down(true);
    handle.flush(soon()).await.unwrap();
    let node = server.get("nodes/n1").unwrap();
    for kind in ["GracefulNodeShutdownInProgress", "DrainInProgress"] {
        assert_eq!(condition(&node, kind)["status"], "True", "{kind}");
    }
    let ready = condition(&node, "Ready");
    assert_eq!((&ready["status"], &ready["message"]), (&json!("True"), &json!("theirs")));
    assert_eq!(node["spec"]["unschedulable"], true);
    assert!(node["metadata"]["annotations"][CORDONED_BY].is_string());
    let theirs = json!({"key": "theirs", "effect": "NoSchedule"});
    let ours = json!({"key": TAINT, "value": "shutdown", "effect": "NoSchedule"});
    assert_eq!(node["spec"]["taints"], json!([theirs, ours]));
    assert!(node["metadata"]["annotations"][TAINTED_BY].is_string());
    assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 3);
    let info = of_kubelet("boot-1")["status"]["nodeInfo"].clone();
    assert_eq!(node["status"]["nodeInfo"], info);
    assert_eq!(node["metadata"]["labels"], json!({"theirs": "1"}));

    handle.set_shutting_down(false);
    let back = |node: &Value| {
        let calm = condition(node, "DrainInProgress")["status"] == "False";
        let free =
            node["spec"]["unschedulable"] != true && node["spec"]["taints"] == json!([theirs]);
        (calm && free).then_some(())
    };
    server.until("it is taken back", |all| back(&*all.get("nodes/n1")?)).await.unwrap();
    let verbs = server.requests().into_iter().map(|one| one.right.verb).collect::<Vec<_>>();
    assert!(!verbs.iter().any(|verb| verb == "create" || verb == "update"), "{verbs:?}");
}

#[tokio::test]
async fn after_a_boot_cordon_and_taint_stay_until_the_kubelet_of_that_boot_is_ready() {
    let server = ApiServer::start().await.unwrap();
    let mut node = of_kubelet("boot-0");
    let mark = json!({"boot": "boot-0", "since": "2030-01-01T00:00:00Z", "reason": "shutdown"});
    let mark = mark.to_string();
    node["metadata"]["annotations"] = json!({CORDONED_BY: mark, TAINTED_BY: mark});
    node["spec"] = json!({
        "unschedulable": true, "taints": [{"key": TAINT, "effect": "NoSchedule"}],
    });
    server.apply(node).unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let handle = begin(&server, &stop).await;
    handle.flush(Instant::now() + Duration::from_secs(30)).await.unwrap();
    assert_eq!(server.get("nodes/n1").unwrap()["spec"]["unschedulable"], true);
    assert_eq!(server.count("patch", "nodes"), 0);
    server.patch("nodes/n1", &json!({"status": {"nodeInfo": {"bootID": "boot-1"}}})).unwrap();
    let free = |node: &Value| {
        let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
        (node["spec"]["unschedulable"] != true && !tainted).then_some(())
    };
    server.until("the node is free", |all| free(&*all.get("nodes/n1")?)).await.unwrap();
}

/// As with the kubelet's own credentials.
#[tokio::test]
async fn a_taint_that_the_server_forbids_is_not_awaited_and_the_rest_is_written() {
    let builder = ApiServer::builder().user("system:node:n1", &["system:nodes"]);
    let server = builder.start().await.unwrap();
    server.restrict_nodes(true);
    server.apply(of_kubelet("boot-1")).unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let handle = begin(&server, &stop).await;
    handle.set_shutting_down(true);
    handle.flush(Instant::now() + Duration::from_secs(30)).await.unwrap();
    let node = server.get("nodes/n1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["spec"]["taints"], of_kubelet("")["spec"]["taints"]);
    assert!(node["metadata"]["annotations"].get(TAINTED_BY).is_none());
    let state = handle.state();
    assert!(state.borrow().refused.as_deref().is_some_and(|why| why.contains("taints")));
}

/// `winddown.dev/CleanShutdown`, for one: controllers may detach volumes at once.
#[tokio::test]
async fn conditions_of_our_own_are_written_beside_those_of_the_kubelet() {
    let server = ApiServer::start().await.unwrap();
    server.apply(of_kubelet("boot-1")).unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let ours = json!({"type": "example.com/Ours", "status": "True", "reason": "r", "message": "m"});
    let handle = begin_with(&server, vec![serde_json::from_value(ours).unwrap()], &stop).await;
    handle.flush(Instant::now() + Duration::from_secs(30)).await.unwrap();
    let node = server.get("nodes/n1").unwrap();
    assert_eq!(condition(&node, "example.com/Ours")["status"], "True");
    assert_eq!(condition(&node, "Ready")["message"], "theirs");
    assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 2);
}
