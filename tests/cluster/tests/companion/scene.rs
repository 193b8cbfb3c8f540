//! An API server, a kubelet, and a companion between them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use winddown_apiserver::ApiServer;
use winddown_companion::{CompanionConfig, KubeletRuntime, companion};
use winddown_shared::{PodUid, Runtime, WallClock};

use crate::companion::kubelet::{Containers, Kubelet};
use crate::connect;

pub(crate) const NODE: &str = "n1";
/// Who the kubelet is to the API server.
pub(crate) const KUBELET: &str = "system:node:n1";

pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) runtime: KubeletRuntime<Containers>,
    pub(crate) containers: Containers,
    down: watch::Sender<bool>,
    _kubelet: Kubelet,
    _follower: DropGuard,
}

#[expect(clippy::disallowed_methods, reason = "a real server has a real clock")]
pub(crate) fn wall() -> WallClock {
    WallClock::new(jiff::Timestamp::now)
}

pub(crate) async fn client(server: &ApiServer) -> kube::Client {
    connect::client(&server.kubeconfig()).await
}

/// A connection of the node's own.
pub(crate) async fn kubelets_client(server: &ApiServer) -> kube::Client {
    let hour = Duration::from_secs(3600);
    let identity = server.new_identity(KUBELET, &["system:nodes"], hour).unwrap();
    connect::client(&server.kubeconfig_of(&identity)).await
}

/// A pod whose containers are ready as soon as they run, with `more` in its metadata.
pub(crate) fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "a", "image": "x"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

impl Scene {
    /// With these pods, which run. Their containers take that long to end.
    pub(crate) async fn new(pods: &[Value], takes: Duration) -> Self {
        Self::with(pods, takes, false).await
    }

    /// The same, and whether it waits for an API server that does not answer, be it only because the machine is busy.
    pub(crate) async fn with(pods: &[Value], takes: Duration, waits_for_api: bool) -> Self {
        let server = ApiServer::start().await.unwrap();
        server.restrict_nodes(true);
        for pod in pods {
            server.apply(pod.clone()).unwrap();
        }
        let containers = Containers::default();
        let _kubelet =
            Kubelet::start(kubelets_client(&server).await, NODE, containers.clone(), takes);
        let down = watch::Sender::new(false);
        let mut config = CompanionConfig::new(NODE, wall());
        (config.going_down, config.waits_for_api) = (down.subscribe(), waits_for_api);
        let (runtime, follower) = companion(client(&server).await, containers.clone(), config);
        let stop = CancellationToken::new();
        tokio::spawn(follower.run(stop.clone()));
        let _follower = stop.drop_guard();
        let scene = Self { server, runtime, containers, down, _kubelet, _follower };
        let count = pods.len();
        scene
            .eventually("all pods run", async |scene| {
                // On a busy machine the first list may be late.
                let known = scene.runtime.list_pods().await.unwrap_or_default();
                known.len() == count && known.iter().all(|pod| pod.running)
            })
            .await;
        scene
    }

    pub(crate) fn uid(&self, name: &str) -> PodUid {
        let pod = self.server.get(&format!("pods/default/{name}")).unwrap();
        PodUid::new(pod["metadata"]["uid"].as_str().unwrap())
    }

    pub(crate) fn set_going_down(&self) {
        self.down.send_replace(true);
    }

    pub(crate) async fn eventually(&self, what: &str, is: impl AsyncFn(&Self) -> bool) {
        let looking = async {
            while !is(self).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), looking).await;
        assert!(found.is_ok(), "not within a minute: {what}");
    }
}
