//! An API server, a provider and a controller between them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::pods::{
    PodController, PodControllerConfig, PodControllerHandle, Prepare, RunError,
};
use winddown_cluster::provider::{Notify, PollTimes, Polled, Provider};
use winddown_cluster::status::{Outbox, OutboxConfig};
use winddown_shared::WallClock;

use crate::pods::sleepers::Sleepers;

pub(crate) const NODE: &str = "node-1";

/// An API server and a provider; controllers come and go.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) provider: Arc<Sleepers>,
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

pub(crate) fn path(name: &str) -> String {
    format!("pods/default/{name}")
}

// === impl Cluster ===

impl Cluster {
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start().await.unwrap();
        let state = tempfile::tempdir().unwrap();
        Self { server, provider: Arc::default(), state }
    }

    pub(crate) async fn client(&self) -> kube::Client {
        let config = kube::config::Kubeconfig::from_yaml(&self.server.kubeconfig()).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) fn config(&self) -> PodControllerConfig {
        PodControllerConfig::new(NODE, wall_clock())
    }

    /// A controller on the provider that tells its changes.
    pub(crate) async fn start(&self) -> Running {
        self.start_on(self.provider.clone(), self.config()).await
    }

    /// A controller on the same provider, asked for its changes.
    pub(crate) async fn start_polling(&self) -> Running {
        let times = PollTimes { busy: Duration::from_millis(100), ..PollTimes::default() };
        let polled = Arc::new(Polled::new(self.provider.clone(), times));
        self.start_on(polled, self.config()).await
    }

    pub(crate) async fn start_on<P: Notify>(
        &self,
        provider: Arc<P>,
        config: PodControllerConfig,
    ) -> Running {
        self.start_as(provider, config, |controller| controller).await
    }

    /// A controller with more than it has by itself.
    pub(crate) async fn start_as<P: Notify, R: Prepare>(
        &self,
        provider: Arc<P>,
        config: PodControllerConfig,
        complete: impl FnOnce(PodController<P, Outbox>) -> PodController<P, Outbox, R>,
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
        let controller = complete(PodController::new(client, provider, Arc::new(outbox), config));
        let handle = controller.handle();
        let controller = tokio::spawn(controller.run(cancel.clone()));
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

    /// Waits until the provider has `count` pods.
    pub(crate) async fn until_provided(&self, count: usize) {
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let pods = self.provider.list_pods().await.unwrap();
            if pods.len() == count {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{} pods instead of {count}", pods.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn uid(&self, name: &str) -> String {
        self.server.get(&path(name)).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
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
