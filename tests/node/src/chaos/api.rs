//! A cluster for one node: an API server on the host, and the node's connection to it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use winddown_apiserver::{ApiServer, Objects};

use super::stage::KUBECONFIG;
use crate::scenario::{SOON, TestResult};
use crate::witness::{At, now};
use crate::{Bridge, Node, TestPod};

/// The API server of a node's cluster, and the node's connection to it.
pub(super) struct Api {
    server: ApiServer,
    bridge: RefCell<Option<Bridge>>,
    slow: Arc<Mutex<Vec<(At, At)>>>,
}

/// How often the API server shows that it has a processor, and how late that may be. It runs in this program, with less
/// of the processors than the nodes.
const TICK: Duration = Duration::from_millis(100);
const LATE: Duration = Duration::from_millis(400);

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
        let slow = Arc::default();
        tokio::spawn(record_when_slow(Arc::clone(&slow)));
        Ok(Self { server, bridge: RefCell::new(Some(bridge)), slow })
    }

    /// When the API server was too slow, from and to.
    pub(super) fn slow(&self) -> Vec<(At, At)> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// Records when the API server's own thread did not run, until the runtime ends.
async fn record_when_slow(slow: Arc<Mutex<Vec<(At, At)>>>) {
    loop {
        let from = Instant::now();
        tokio::time::sleep(TICK).await;
        let took = from.elapsed();
        if took > TICK + LATE {
            let to = now();
            let from = to.saturating_sub(At::try_from(took.as_nanos()).unwrap_or(0));
            slow.lock().unwrap_or_else(PoisonError::into_inner).push((from, to));
        }
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("bridge", &self.bridge).finish_non_exhaustive()
    }
}
