//! Pods that run in containerd and that only containerd describes.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{PodLog, TestPod};

use super::{CERTIFICATE, CONFIGURATION, KUBECONFIG, configuration, kubeconfig};
use crate::cluster::bed::Bed;

/// How long the node may take to be off.
const DOWN: Duration = Duration::from_secs(60);
/// How soon after the request the first pod is asked to end.
const AT_ONCE: Duration = Duration::from_secs(3);
/// A port of the node's own on which nothing listens.
const REFUSING: &str = "https://127.0.0.1:6443";
/// One on which a listener takes connections and never answers.
const SILENT: &str = "https://127.0.0.1:6444";
const SILENT_SOCKET: &str = "[Socket]\nListenStream=127.0.0.1:6444\n";
/// Its main process exits on SIGTERM, as a kubelet does.
const KUBELET: &str = "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=10\n";
const SILENT_SERVICE: &str = "[Service]\nExecStart=/bin/sleep infinity\n";

/// The pods in the order in which they end: of the API server, of a DaemonSet, of manifests.
fn pods() -> Vec<TestPod> {
    let all =
        [("web-0", 300), ("web-1", 500), ("logs", 300), ("kube-apiserver", 400), ("etcd", 200)];
    all.map(|(name, stop_ms)| TestPod::new(name, 0, stop_ms).in_container()).into()
}

/// A node of a cluster on which these pods run, and whose agent is then stopped. Until here, the agent plays the
/// kubelet: it records in containerd what a kubelet does.
async fn begin(test: &str) -> TestResult<Option<Bed>> {
    let Some(bed) = Bed::joined_with_containerd(test, pods()).await? else { return Ok(None) };
    let [web_0, web_1, logs, api_server, etcd] = &bed.scenario.pods[..] else {
        return Err("five pods".into());
    };
    bed.bind(web_0)?;
    bed.bind(web_1)?;
    bed.bind_as(logs, |pod| {
        pod["metadata"]["labels"] = json!({"pod-template-generation": "1"});
    })?;
    for pod in [api_server, etcd] {
        let mut manifest: Value = serde_json::from_str(&pod.manifest())?;
        manifest["metadata"]["namespace"] = json!("kube-system");
        manifest["metadata"]["labels"] = json!({"component": pod.name, "tier": "control-plane"});
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        bed.scenario.node.write(&path, manifest.to_string(), 0o600)?;
    }
    bed.scenario.wait_started(bed.scenario.pods.len()).await?;
    bed.scenario.node.run(&["systemctl", "stop", "winddown"]).await?;
    Ok(Some(bed))
}

/// Starts the agent beside the kubelet that these pods seem to have, and waits until it knows them.
async fn start_beside(scenario: &Scenario) -> TestResult {
    let node = &scenario.node;
    node.run(&["sh", "-c", "rm -rf /etc/winddown/pods /run/winddown"]).await?;
    node.write(CONFIGURATION, configuration(), 0o600)?;
    node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.lock_is_back().await?;
    let knows = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["pods"].as_array().is_some_and(|pods| pods.len() == scenario.pods.len())
    };
    if let Err(error) = node.wait_until("the agent to know the pods", SOON, knows).await {
        let journal = node.journal(&["--unit=winddown", "--lines=60"]).await?;
        return Err(format!("{error}\n{}\n{journal}", scenario.text(&["status"]).await?).into());
    }
    Ok(())
}

/// Fails unless every pod ended by itself, after those before it in the order.
fn assert_in_order(scenario: &Scenario, asked: u64) {
    let logs = scenario.logs();
    let of = |names: &[&str]| -> Vec<PodLog> { names.iter().map(|&n| logs[n].clone()).collect() };
    for (name, log) in &logs {
        let counts = (log.starts.len(), log.terms.len(), log.exits.len());
        assert_eq!(counts, (1, 1, 1), "{name}: {log:?}");
    }
    let mut before = asked;
    for names in [&["web-0", "web-1"][..], &["logs"], &["kube-apiserver"], &["etcd"]] {
        let logs = of(names);
        let terms = logs.iter().flat_map(|log| &log.terms).min().copied().unwrap_or_default();
        assert!(terms >= before, "{names:?} were asked too early");
        let waited = Duration::from_nanos(terms - before);
        println!("{names:?} asked after {waited:?}");
        assert!(waited < AT_ONCE, "{names:?} waited {waited:?}");
        before = logs.iter().flat_map(|log| &log.exits).max().copied().unwrap_or_default();
    }
}

async fn ends_in_order(scenario: &mut Scenario, go: &[&str]) -> TestResult {
    start_beside(scenario).await?;
    let asked = scenario.node.run(&["date", "+%s%N"]).await?.trim().parse()?;
    scenario.node.shut_down(go).await?;
    scenario.node.wait_off(DOWN).await?;
    assert_in_order(scenario, asked);
    let journal = scenario.node.journal(&["--unit=winddown", "--output=cat"]).await?;
    assert!(journal.contains("all pods terminated in"), "{journal}");
    assert!(journal.contains("the node goes down: not done"), "nothing was sent:\n{journal}");
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report:#}");
    scenario.assert_systemd_killed_nothing().await
}

#[tokio::test]
async fn pods_end_in_order_and_at_once_without_credentials_and_while_the_api_server_refuses_or_is_silent()
-> TestResult {
    let test = "pods_end_in_order_and_at_once_without_credentials_and_while_the_api_server_refuses_or_is_silent";
    for (server, has_credentials) in [(REFUSING, false), (REFUSING, true), (SILENT, true)] {
        let Some(mut bed) = begin(test).await? else { return Ok(()) };
        let node = &bed.scenario.node;
        if has_credentials {
            let text = kubeconfig(&bed.server).replace(&bed.server.url(), server);
            node.write(KUBECONFIG, text, 0o600)?;
            node.write(CERTIFICATE, bed.server.client_identity_pem(), 0o600)?;
        }
        node.write("/etc/systemd/system/silent.socket", SILENT_SOCKET, 0o644)?;
        node.write("/etc/systemd/system/silent.service", SILENT_SERVICE, 0o644)?;
        node.run(&["systemctl", "daemon-reload"]).await?;
        node.run(&["systemctl", "start", "silent.socket"]).await?;
        println!("{server}, credentials: {has_credentials}");
        ends_in_order(&mut bed.scenario, &["systemctl", "poweroff"]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_kubelet_is_stopped_first_where_systemd_would_stop_it_after_the_agent() -> TestResult {
    let test = "the_kubelet_is_stopped_first_where_systemd_would_stop_it_after_the_agent";
    let Some(mut bed) = begin(test).await? else { return Ok(()) };
    let node = &bed.scenario.node;
    node.write("/etc/systemd/system/kubelet.service", KUBELET, 0o644)?;
    node.run(&["systemctl", "daemon-reload"]).await?;
    node.run(&["systemctl", "start", "kubelet"]).await?;
    // logind is not asked.
    let go = ["systemctl", "start", "--no-block", "poweroff.target"];
    ends_in_order(&mut bed.scenario, &go).await?;
    let journal = bed.scenario.node.journal(&["--unit=winddown", "--output=cat"]).await?;
    assert!(journal.contains("stopped the kubelet so that"), "{journal}");
    Ok(())
}
