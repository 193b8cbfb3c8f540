//! An API server, a node and a controller between them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::pods::{
    PodController, PodControllerConfig, PodControllerHandle, Prepare, RunError,
};
use winddown_cluster::status::{Outbox, OutboxConfig};
use winddown_shared::WallClock;

use crate::in_memory::InMemory;

pub(crate) const NODE: &str = "node-1";

/// An API server and a node; controllers come and go.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) node: InMemory,
    state: tempfile::TempDir,
}

/// A controller that runs.
pub(crate) struct Running {
    pub(crate) handle: PodControllerHandle,
    cancel: CancellationToken,
    controller: JoinHandle<Result<(), RunError>>,
    sending: JoinHandle<()>,
}

pub(crate) fn wall_clock() -> WallClock {
    #[allow(clippy::disallowed_methods, reason = "the server's clock is the real one")]
    WallClock::new(jiff::Timestamp::now)
}

/// A pod that sleeps until it is ended.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "image": "none"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// The same, of which no container is started again.
pub(crate) fn once(name: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["restartPolicy"] = json!("Never");
    object
}

pub(crate) fn path(name: &str) -> String {
    format!("pods/default/{name}")
}

// === impl Cluster ===

impl Cluster {
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start().await.unwrap();
        let state = tempfile::tempdir().unwrap();
        Self { server, node: InMemory::default(), state }
    }

    pub(crate) async fn client(&self) -> kube::Client {
        crate::connect::client(&self.server.kubeconfig()).await
    }

    pub(crate) fn config(&self) -> PodControllerConfig {
        PodControllerConfig::new(NODE, wall_clock())
    }

    /// A controller beside a runtime that tells its changes.
    pub(crate) async fn start(&self) -> Running {
        self.start_as(true, |controller| controller).await
    }

    /// One beside a runtime that is asked for them.
    pub(crate) async fn start_polling(&self) -> Running {
        self.start_as(false, |controller| controller).await
    }

    /// A controller with more than it has by itself.
    pub(crate) async fn start_as<R: Prepare>(
        &self,
        tells: bool,
        complete: impl FnOnce(PodController<Outbox>) -> PodController<Outbox, R>,
    ) -> Running {
        let client = self.client().await;
        let cancel = CancellationToken::new();
        let statuses = OutboxConfig {
            directory: Some(self.state.path().to_owned()),
            wall: wall_clock(),
            ..OutboxConfig::default()
        };
        let (outbox, driver) = Outbox::new(&statuses);
        let sending = tokio::spawn(driver.run(client.clone(), cancel.clone()));
        let controller = complete(self.node.controller(client, &outbox, self.config()));
        let handle = controller.handle();
        let run = self.node.run(controller, outbox, wall_clock(), tells, cancel.clone());
        let controller = tokio::spawn(run);
        Running { handle, cancel, controller, sending }
    }

    /// Waits until the API has the pod in this phase.
    pub(crate) async fn until_phase(&self, name: &str, phase: &str) {
        let what = format!("{name} is {phase}");
        let path = path(name);
        let is = |pod: &Value| pod["status"]["phase"] == *phase;
        let found =
            self.server.until(&what, |o| o.get(&path).filter(|pod| is(pod)).map(|_| ())).await;
        found.unwrap();
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let path = path(name);
        let gone = |o: &winddown_apiserver::Objects<'_>| o.get(&path).is_none().then_some(());
        self.server.until(&format!("{name} is gone"), gone).await.unwrap();
    }

    /// Waits until the node has `count` pods.
    pub(crate) async fn until_given(&self, count: usize) {
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let pods = self.node.pods();
            if pods.len() == count {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{} pods instead of {count}", pods.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

// === impl Running ===

impl Running {
    pub(crate) async fn ready(mut self) -> Self {
        let ready = tokio::time::timeout(Duration::from_secs(60), self.handle.ready()).await;
        assert!(ready.expect("ready within a minute"), "it ended before it was ready");
        self
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.controller.await.unwrap().unwrap();
        self.sending.await.unwrap();
    }
}
