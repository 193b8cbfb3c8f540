//! A cluster for one node: an API server on the host, and the node's connection to it.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::{ApiServer, Objects};

use super::stage::KUBECONFIG;
use crate::scenario::{SOON, TestResult};
use crate::{Bridge, Node, TestPod};

/// The API server of a node's cluster, and the node's connection to it.
pub(super) struct Api {
    server: ApiServer,
    bridge: RefCell<Option<Bridge>>,
}

impl Api {
    /// Starts an API server that the running node can reach and access. With `with_worker`, it has another node, which
    /// never goes down.
    pub(super) async fn start(node: &Node, with_worker: bool) -> TestResult<Self> {
        let server = ApiServer::start().await?;
        if with_worker {
            server.apply(serde_json::json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "worker", "labels": {"role": "worker"}},
            }))?;
        }
        node.write(KUBECONFIG, server.kubeconfig(), 0o600)?;
        let bridge = Bridge::open(node, server.address()).await?;
        Ok(Self { server, bridge: RefCell::new(Some(bridge)) })
    }

    /// Binds the pods to the node, once it is registered.
    pub(super) async fn bind(&self, pods: &[TestPod]) -> TestResult {
        let node = |all: &Objects<'_>| Some(all.list("nodes").first()?["metadata"]["name"].clone());
        let node = self.server.within(SOON, "the node to be registered", node).await?;
        for pod in pods {
            let mut object: Value = serde_json::from_str(&pod.manifest())?;
            object["spec"]["nodeName"] = node.clone();
            object["spec"]["automountServiceAccountToken"] = false.into();
            object["status"] = json!({"phase": "Pending"});
            self.server.apply(object)?;
        }
        Ok(())
    }

    /// Waits until the API server has heard that the pods run.
    pub(super) async fn run(&self, pods: &[TestPod]) -> TestResult {
        let run = |all: &Objects<'_>| {
            let runs = |pod: &TestPod| {
                let object = all.get(&format!("pods/default/{}", pod.name));
                object.is_some_and(|object| object["status"]["phase"] == "Running")
            };
            pods.iter().all(runs).then_some(())
        };
        Ok(self.server.within(SOON, "the pods to run", run).await?)
    }

    /// Disconnects the node for this long.
    pub(super) async fn down(&self, node: &Node, lasts: Duration) -> TestResult {
        let bridge = self.bridge.take();
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
        tokio::time::sleep(lasts).await;
        let bridge = Bridge::open(node, self.server.address()).await?;
        self.bridge.replace(Some(bridge));
        Ok(())
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("bridge", &self.bridge).finish_non_exhaustive()
    }
}
