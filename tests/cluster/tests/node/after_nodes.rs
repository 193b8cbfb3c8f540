//! What is known of the nodes that go down first, with an API server in every kind of trouble.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::{ApiServer, Fault, Objects};
use winddown_cluster::after_nodes::{DownStage, NodesFollower, Reason, SeenNodes, wait};

use crate::connect::client;
use crate::node::harness::LONG;

const WORKERS: &str = "!node-role.kubernetes.io/control-plane";
/// Longer than the answers take, and short.
const SHORT: Duration = Duration::from_millis(700);

/// A control plane's node `cp` that follows its workers `w1` and `w2`.
struct Rack {
    server: ApiServer,
    seen: watch::Receiver<SeenNodes>,
    stop: CancellationToken,
}

impl Rack {
    async fn new() -> Self {
        let server = ApiServer::start().await.unwrap();
        let role = json!({"node-role.kubernetes.io/control-plane": ""});
        add(&server, "cp", &role);
        add(&server, "w1", &json!({}));
        add(&server, "w2", &json!({}));
        Self::on(server, WORKERS).await
    }

    async fn on(server: ApiServer, selector: &str) -> Self {
        let follower = NodesFollower::new(client(&server.kubeconfig()).await, selector, "cp");
        let (seen, stop) = (follower.seen(), CancellationToken::new());
        tokio::spawn(follower.run(stop.clone()));
        Self { server, seen, stop }
    }

    async fn sees(&mut self, what: &str, is: impl FnMut(&SeenNodes) -> bool) {
        let seen = timeout(LONG, self.seen.wait_for(is)).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()), "{what}: {:?}", self.seen.borrow());
    }

    async fn sees_stages(&mut self, stages: &[(&str, DownStage)]) {
        let stages = stages.iter().map(|(name, stage)| (Arc::from(*name), *stage)).collect();
        self.sees("the stages", |seen| seen.nodes.as_ref() == Some(&stages)).await;
    }

    /// Ends the watch as one that is asked for what is too long ago.
    async fn break_watch(&self) {
        let open = |all: &Objects<'_>| (all.open_watches("nodes") > 0).then_some(());
        self.server.until("the watch", open).await.unwrap();
        self.server.fail_watches("nodes", 410, "Expired");
    }

    /// Waits as a shutdown does, for that long at most: none when the time was over.
    async fn waits(&self, at_most: Duration) -> Option<Reason> {
        let until = Instant::now() + at_most;
        timeout(at_most, wait(self.seen.clone(), until, |_| {})).await.ok()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn add(server: &ApiServer, name: &str, labels: &serde_json::Value) {
    let metadata = json!({"name": name, "labels": labels});
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).unwrap();
    says(server, name, "False");
}

/// Whether it went down cleanly, as its agent writes it.
fn says(server: &ApiServer, name: &str, clean: &str) {
    let conditions = json!([{"type": "winddown.dev/CleanShutdown", "status": clean}]);
    server.patch(&format!("nodes/{name}"), &json!({"status": {"conditions": conditions}})).unwrap();
}

#[tokio::test]
async fn a_control_plane_waits_for_its_workers_and_not_for_itself() {
    let mut rack = Rack::new().await;
    rack.sees_stages(&[("w1", DownStage::Up), ("w2", DownStage::Up)]).await;
    assert_eq!(rack.waits(SHORT).await, None, "they are up");
    says(&rack.server, "w1", "True");
    rack.server.remove("nodes/w2");
    assert_eq!(rack.waits(LONG).await, Some(Reason::AllDown));
    assert_eq!(rack.server.count("list", "nodes"), 1, "the rest came by the watch");
    // One that matches everything leaves itself out.
    let alone = ApiServer::start().await.unwrap();
    add(&alone, "cp", &json!({}));
    let alone = Rack::on(alone, "!none").await;
    assert_eq!(alone.waits(LONG).await, Some(Reason::NoneMatches));
}

#[tokio::test]
async fn a_partition_costs_the_wait_and_what_was_heard_before_it_counts() {
    let mut rack = Rack::new().await;
    rack.sees_stages(&[("w1", DownStage::Up), ("w2", DownStage::Up)]).await;
    says(&rack.server, "w1", "True");
    rack.sees_stages(&[("w1", DownStage::Down), ("w2", DownStage::Up)]).await;
    rack.server.cut_off().await.unwrap();
    rack.sees("the partition", |seen| seen.trouble.is_some()).await;
    assert_eq!(rack.waits(SHORT).await, None);
    says(&rack.server, "w2", "True");
    rack.server.come_back().await.unwrap();
    assert_eq!(rack.waits(LONG).await, Some(Reason::AllDown));
    rack.server.cut_off().await.unwrap();
    rack.sees("the next one", |seen| seen.trouble.is_some()).await;
    assert_eq!(rack.waits(LONG).await, Some(Reason::AllDown), "both had said so");
}

#[tokio::test]
async fn a_server_that_is_silent_or_refuses_from_the_start_is_never_read_as_no_nodes() {
    let silent = ApiServer::start().await.unwrap();
    silent.fault(Fault::on("list", "nodes").hang());
    let silent = Rack::on(silent, WORKERS).await;
    assert_eq!(silent.waits(SHORT).await, None);

    let refusing = ApiServer::start().await.unwrap();
    refusing.deny("list", "nodes");
    let mut refusing = Rack::on(refusing, WORKERS).await;
    let named = |seen: &SeenNodes| seen.trouble.as_deref().is_some_and(|why| why.contains("nodes"));
    refusing.sees("the refusal", named).await;
    assert_eq!(refusing.waits(SHORT).await, None);
    refusing.server.allow_everything();
    assert_eq!(refusing.waits(LONG).await, Some(Reason::NoneMatches));
}

#[tokio::test]
async fn a_server_that_cannot_list_again_leaves_what_was_known() {
    let mut rack = Rack::new().await;
    rack.sees_stages(&[("w1", DownStage::Up), ("w2", DownStage::Up)]).await;
    let fault = rack.server.fault(Fault::on("list", "nodes").status(503));
    rack.break_watch().await;
    rack.sees("the loss", |seen| seen.trouble.is_some()).await;
    assert_eq!(rack.waits(SHORT).await, None);
    assert_eq!(rack.seen.borrow().nodes.as_ref().map(BTreeMap::len), Some(2));
    rack.server.lift(fault);
    rack.sees("it back", |seen| seen.trouble.is_none()).await;
    rack.sees_stages(&[("w1", DownStage::Up), ("w2", DownStage::Up)]).await;
}
