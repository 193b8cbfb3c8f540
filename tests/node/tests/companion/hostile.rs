//! What an API server, or a tenant of the cluster, tries against an agent beside a kubelet.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use winddown_apiserver::{ApiServer, Fault};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{Bridge, Node, TestPod};

use super::{CERTIFICATE, CONFIGURATION, KUBECONFIG, configuration, kubeconfig};
use crate::cluster::bed::Bed;

/// How long the server pours.
const POURS: Duration = Duration::from_secs(20);
/// The most resident memory of the agent meanwhile, in MiB: a few answers of 64 at a time. Without a bound it is
/// thousands.
const MOST: u64 = 600;
/// How long the node may take to be off.
const DOWN: Duration = Duration::from_secs(60);

/// The agent's resident memory in MiB.
async fn resident(node: &Node) -> TestResult<u64> {
    let script = "grep VmRSS: /proc/$(systemctl show -P MainPID winddown)/status";
    let line = node.run(&["sh", "-c", script]).await?;
    let kib = line.split_whitespace().nth(1).ok_or("no VmRSS")?;
    Ok(kib.parse::<u64>()? / 1024)
}

#[tokio::test]
async fn an_api_server_that_never_ends_an_answer_takes_no_memory_of_the_node() -> TestResult {
    let test = "an_api_server_that_never_ends_an_answer_takes_no_memory_of_the_node";
    let Some(scenario) = Scenario::installed_with(test, Vec::new()).await? else { return Ok(()) };
    let node = &scenario.node;
    let server = ApiServer::start().await?;
    server.fault(Fault::on("*", "*").endless());
    let _bridge = Bridge::open(node, server.address()).await?;
    node.write(KUBECONFIG, kubeconfig(&server), 0o600)?;
    node.write(CERTIFICATE, server.client_identity_pem(), 0o600)?;
    node.write(CONFIGURATION, configuration(), 0o600)?;
    node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.lock_is_back().await?;
    let (begun, mut most) = (Instant::now(), 0);
    while begun.elapsed() < POURS {
        most = most.max(resident(node).await?);
        assert!(most < MOST, "{most} MiB after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("at most {most} MiB");
    assert!(server.count("list", "pods") > 1, "{:?}", server.requests());
    scenario.lock_is_back().await?;
    Ok(())
}

/// A pod of the API server as a kubelet mirrors the pod of a manifest, which it knows by the UID `hash`.
fn mirror(node: &Value, namespace: &str, name: &str, hash: &str, priority: i32) -> Value {
    let (node_name, node_uid) = (&node["metadata"]["name"], &node["metadata"]["uid"]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {"component": name, "tier": "control-plane"},
            "annotations": {
                "kubernetes.io/config.mirror": hash,
                "kubernetes.io/config.hash": hash,
                "kubernetes.io/config.source": "file",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": true,
            }],
        },
        "spec": {
            "nodeName": node_name,
            "hostNetwork": true,
            "priority": priority,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "winddown.test/run:1"}],
        },
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": "x", "imageID": "x",
            "containerID": "containerd://x", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }]},
    })
}

/// Stops the agent that plays the kubelet, and gives the API server the mirror pods of the two manifests, and one that
/// a tenant made: it names the node's object as its owner, and the UID of etcd's pod.
async fn forge(bed: &Bed) -> TestResult {
    let scenario = &bed.scenario;
    let status = scenario.status().await?;
    let uid = |name: &str| {
        let mut pods = status["pods"].as_array().into_iter().flatten();
        let pod = pods.find(|pod| pod["name"].as_str().is_some_and(|one| one.starts_with(name)));
        pod.and_then(|pod| pod["uid"].as_str()).map(str::to_owned).ok_or("no such pod")
    };
    let (api_server, etcd) = (uid("kube-apiserver")?, uid("etcd")?);
    scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    let node = bed.node()?;
    let name =
        |pod: &str| format!("{pod}-{}", node["metadata"]["name"].as_str().unwrap_or_default());
    for pod in bed.server.list("pods") {
        let at = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        bed.server.delete(&format!("pods/{}/{}", at("namespace"), at("name")), Some(0))?;
    }
    for (pod, hash) in [("kube-apiserver", &api_server), ("etcd", &etcd)] {
        bed.server.apply(mirror(&node, "kube-system", &name(pod), hash, 2_000_001_000))?;
    }
    bed.server.apply(mirror(&node, "tenant", "harmless", &etcd, 0))?;
    Ok(())
}

#[tokio::test]
async fn a_tenants_pod_that_says_it_is_etcds_mirror_ends_no_etcd() -> TestResult {
    let test = "a_tenants_pod_that_says_it_is_etcds_mirror_ends_no_etcd";
    let pods = [("kube-apiserver", 400), ("etcd", 200)];
    let pods = pods.map(|(name, stop_ms)| TestPod::new(name, 0, stop_ms).in_container());
    let Some(mut bed) = Bed::joined_with_containerd(test, pods.into()).await? else {
        return Ok(());
    };
    for pod in &bed.scenario.pods {
        let mut manifest: Value = serde_json::from_str(&pod.manifest())?;
        manifest["metadata"]["namespace"] = json!("kube-system");
        manifest["metadata"]["labels"] = json!({"component": pod.name, "tier": "control-plane"});
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        bed.scenario.node.write(&path, manifest.to_string(), 0o600)?;
    }
    bed.scenario.wait_started(2).await?;
    forge(&bed).await?;

    let node = &bed.scenario.node;
    node.write(KUBECONFIG, kubeconfig(&bed.server), 0o600)?;
    node.write(CERTIFICATE, bed.server.client_identity_pem(), 0o600)?;
    node.write(CONFIGURATION, configuration(), 0o600)?;
    node.run(&["sh", "-c", "rm -rf /etc/winddown/pods /run/winddown"]).await?;
    node.run(&["systemctl", "start", "winddown"]).await?;
    let scenario = &mut bed.scenario;
    scenario.lock_is_back().await?;
    let knows = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["pods"].as_array().is_some_and(|pods| pods.len() == 3)
    };
    scenario.node.wait_until("the agent to know the pods", SOON, knows).await?;
    println!("{}", scenario.text(&["plan", "shutdown"]).await?);

    scenario.power_off().await?;
    scenario.node.wait_off(DOWN).await?;
    let logs = scenario.logs();
    for (name, log) in &logs {
        let counts = (log.starts.len(), log.terms.len(), log.exits.len());
        assert_eq!(counts, (1, 1, 1), "{name}: {log:?}");
    }
    let (asked, ended) = (logs["etcd"].terms[0], logs["kube-apiserver"].exits[0]);
    assert!(asked >= ended, "etcd was asked before the API server had terminated: {logs:?}");
    println!("etcd was asked {:?} after its API server", Duration::from_nanos(asked - ended));
    Ok(())
}
