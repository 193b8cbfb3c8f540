//! A node and its API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::node::{
    LeaseTimes, NodeController, NodeControllerHandle, NodeFacts, NodeSettings, Registration,
};
use winddown_shared::WallClock;

pub(crate) const NODE: &str = "nodes/n1";
pub(crate) const LEASE: &str = "leases.coordination.k8s.io/kube-node-lease/n1";
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Agent {
    pub(crate) handle: NodeControllerHandle,
    _facts: watch::Sender<NodeFacts>,
    pub(crate) stop: CancellationToken,
    pub(crate) run: JoinHandle<()>,
}

/// As fast as the settings allow, so that tests are short.
pub(crate) fn settings() -> NodeSettings {
    NodeSettings {
        lease: Some(LeaseTimes::new(Duration::from_secs(4), Duration::from_secs(1)).unwrap()),
        update_frequency: Duration::from_secs(1),
        ..NodeSettings::default()
    }
}

pub(crate) fn always() -> NodeSettings {
    NodeSettings { registration: Registration::Always, ..settings() }
}

pub(crate) fn facts() -> NodeFacts {
    let amounts = [("cpu", "2"), ("memory", "4Gi"), ("pods", "110"), ("ephemeral-storage", "10Gi")];
    let amounts: BTreeMap<_, _> =
        amounts.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).into();
    let address = |text: &str| NodeAddress { type_: "InternalIP".into(), address: text.into() };
    NodeFacts {
        labels: [("kubernetes.io/hostname".to_owned(), "n1".to_owned())].into(),
        addresses: vec![address("10.0.0.1"), address("fd00::1")],
        capacity: amounts.clone(),
        allocatable: amounts,
        info: NodeSystemInfo { boot_id: "boot-1".into(), ..NodeSystemInfo::default() },
        ..NodeFacts::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "a real server has a real clock")]
pub(crate) fn clock() -> WallClock {
    WallClock::new(jiff::Timestamp::now)
}

impl Agent {
    pub(crate) async fn start_with(
        server: &ApiServer,
        facts: NodeFacts,
        settings: NodeSettings,
    ) -> Self {
        let client = crate::connect::client(&server.kubeconfig()).await;
        let (_facts, told) = watch::channel(facts);
        let (controller, handle) = NodeController::builder(client, "n1", told, clock())
            .settings(settings)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let run = tokio::spawn(controller.run(stop.clone()));
        Self { handle, _facts, stop, run }
    }

    /// Starts, is ready, and has told the API server so.
    pub(crate) async fn ready(server: &ApiServer) -> Self {
        let agent = Self::start_with(server, facts(), settings()).await;
        agent.handle.set_ready(Ok(()));
        agent.told().await;
        agent
    }

    pub(crate) async fn told(&self) {
        self.handle.flush(Instant::now() + LONG).await.unwrap();
    }

    /// Ends the controller, which has to end by itself.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(LONG, self.run).await.unwrap().unwrap();
    }
}

pub(crate) fn node(server: &ApiServer) -> Arc<Value> {
    server.get(NODE).unwrap()
}

pub(crate) fn condition(node: &Value, kind: &str) -> Value {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

/// Waits until the node is as `is` has it.
pub(crate) async fn until(server: &ApiServer, what: &str, is: impl Fn(&Value) -> bool) {
    server.until(what, |all| is(&*all.get(NODE)?).then_some(())).await.unwrap();
}
