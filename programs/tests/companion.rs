//! A whole node in companion mode: the plan, the order and the report are the agent's, the containers the kubelet's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSystemInfo;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_api_client::{ClusterConfig, Connection, Credentials};
use winddown_apiserver::ApiServer;
use winddown_cluster::node::{NodeFacts, NodeSettings};
use winddown_companion::{
    CompanionConfig, KubeletRuntime, LocalContainers, LocalHolds, LocalKubelet, NodeError,
    RuntimePodState, companion,
};
use winddown_config::{Config, ShutdownOrder, ShutdownPeriods, ShutdownSettings};
use winddown_node::cluster::Cluster;
use winddown_node::{Configured, Node, NodeIdentity, ShutdownHandle};
use winddown_shared::testing::FakeInhibitor;
use winddown_shared::{FoundPod, Inhibitor, LockState, PodKiller, PodUid, PodUidMap, WallClock};
use winddown_shutdown::BootClock;

/// The running pods, and the order in which pods terminated.
#[derive(Clone, Default)]
struct Containers(Arc<Mutex<(HashSet<PodUid>, Vec<String>)>>);

impl Containers {
    fn end(&self, uid: &str, who: &str) {
        let mut state = self.0.lock().unwrap();
        if state.0.remove(&PodUid::new(uid)) {
            state.1.push(who.to_owned());
        }
    }
}

impl LocalContainers for Containers {
    async fn look(&self) -> Result<PodUidMap<RuntimePodState>, NodeError> {
        let inside = || RuntimePodState { running: vec!["a".to_owned()], has_sandbox: true };
        Ok(self.0.lock().unwrap().0.iter().map(|uid| (uid.clone(), inside())).collect())
    }

    async fn pods(&self) -> Result<Vec<FoundPod>, NodeError> {
        let found = |uid: &PodUid| {
            let source = if uid.as_str() == "etcd" { "file" } else { "api" };
            FoundPod {
                uid: uid.clone(),
                name: uid.as_str().to_owned(),
                namespace: "default".to_owned(),
                labels: [].into(),
                annotations: [("kubernetes.io/config.source".to_owned(), source.to_owned())].into(),
                containers: Vec::new(),
            }
        };
        Ok(self.0.lock().unwrap().0.iter().map(found).collect())
    }

    async fn stop(&self, uid: &PodUid, _: Duration) -> Result<(), NodeError> {
        self.end(uid.as_str(), &format!("{} by the runtime", uid.as_str()));
        Ok(())
    }
}

impl LocalHolds for Containers {}

impl LocalKubelet for Containers {}

fn pod(name: &str, priority: i32, annotations: &Value, owners: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, "ownerReferences": owners},
        "spec": {
            "nodeName": "n1", "priority": priority, "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "a", "image": "x"}],
        },
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "a", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}},
        }]},
    })
}

/// Terminates deleted pods, a moment later.
async fn kubelet(server: Arc<ApiServer>, containers: Containers) {
    loop {
        for pod in server.list("pods") {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                let name = pod["metadata"]["name"].as_str().unwrap();
                containers.end(pod["metadata"]["uid"].as_str().unwrap(), name);
                server.remove(&format!("pods/default/{name}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

struct Scene {
    server: Arc<ApiServer>,
    containers: Containers,
    node: Node<KubeletRuntime<Containers>>,
    shutdown: ShutdownHandle,
    login: FakeInhibitor,
    _state: tempfile::TempDir,
}

#[expect(clippy::disallowed_methods, reason = "a real server has a real clock")]
fn wall() -> WallClock {
    WallClock::new(jiff::Timestamp::now)
}

async fn connect(folder: &Path, server: &ApiServer) -> Connection {
    let path = folder.join("kubeconfig");
    std::fs::write(&path, server.kubeconfig()).unwrap();
    let credentials = Credentials::Kubeconfig { path, context: None };
    Connection::open(ClusterConfig::new(credentials), wall()).await.unwrap()
}

impl Scene {
    async fn new() -> Self {
        let server = Arc::new(ApiServer::start().await.unwrap());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        let node = server.apply(node).unwrap();
        let owner = json!([{
            "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"],
            "controller": true,
        }]);
        let mirror = json!({
            "kubernetes.io/config.mirror": "etcd", "kubernetes.io/config.hash": "etcd",
            "kubernetes.io/config.source": "file",
        });
        let containers = Containers::default();
        containers.0.lock().unwrap().0.insert(PodUid::new("etcd"));
        for (name, priority, annotations, owners) in [
            ("etcd", 0, mirror, owner),
            ("dns", 2_000_000_000, json!({}), json!([])),
            ("web", 0, json!({}), json!([])),
        ] {
            let made = server.apply(pod(name, priority, &annotations, &owners)).unwrap();
            let uid = PodUid::new(made["metadata"]["uid"].as_str().unwrap());
            if name != "etcd" {
                containers.0.lock().unwrap().0.insert(uid);
            }
        }
        let state = tempfile::tempdir().unwrap();
        let connection = connect(state.path(), &server).await;
        let (down, login) = (watch::Sender::new(false), FakeInhibitor::holding(secs(60)));
        let mut settings = CompanionConfig::new("n1", wall());
        settings.going_down = down.subscribe();
        let (runtime, follower) = companion(connection.client(), containers.clone(), settings);
        tokio::spawn(follower.run(CancellationToken::new()));
        let wanted = runtime.desired();
        let mut config = Config {
            shutdown: ShutdownSettings {
                order: ShutdownOrder::Role,
                ..ShutdownPeriods::Total { total: secs(40), critical: secs(20) }.into()
            },
            ..Config::default()
        };
        config.access.state_directory = state.path().to_owned();
        let info = NodeSystemInfo { boot_id: "boot".into(), ..NodeSystemInfo::default() };
        let cluster = Cluster {
            connection,
            node: NodeSettings::beside_kubelet(),
            facts: NodeFacts { info, ..NodeFacts::default() },
            pods: None,
        };
        let configured = Configured::of(config, wall().now());
        let plugin = configured.shutdown(Arc::new(login.clone()));
        let shutdown = plugin.handle();
        let node = Node::builder(Arc::new(runtime))
            .clocks(wall(), BootClock::new(Duration::default))
            .settings(configured.settings())
            .source(wanted)
            .identity(NodeIdentity { name: "n1".into(), boot_id: "boot".into() })
            .plugin(plugin)
            .plugin(cluster)
            .admits_all(true)
            .start()
            .unwrap();
        let progress = shutdown.progress();
        // As in the service.
        tokio::spawn(async move {
            let mut progress = progress;
            let _ =
                progress.wait_for(|now| now.phase != winddown_shutdown::ProgressPhase::Idle).await;
            down.send_replace(true);
        });
        tokio::spawn(kubelet(Arc::clone(&server), containers.clone()));
        let scene = Self { server, containers, node, shutdown, login, _state: state };
        scene
            // Until the API server has answered, they are known by what the container runtime says of them.
            .eventually(
                "the API server's three pods are known, and the static one as such",
                |scene| {
                    let pods = scene.node.workers().running().pods;
                    let is_known = |name: &str| pods.iter().find(|pod| **pod.name() == *name);
                    ["web", "dns"].into_iter().all(|name| is_known(name).is_some())
                        // Its place in the order comes once the container runtime has confirmed that it is one.
                    && is_known("etcd").is_some_and(|pod| pod.priority() == Some(2_000_001_000))
                },
            )
            .await;
        scene
    }

    async fn eventually(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let end = tokio::time::Instant::now() + secs(60);
        while !is(self) {
            assert!(tokio::time::Instant::now() < end, "not within a minute: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn shut_down(&self) {
        self.login.prepare();
        let mut state = self.login.state();
        let released = state.wait_for(|state| state.lock == LockState::Released);
        tokio::time::timeout(secs(120), released).await.unwrap().unwrap();
    }

    fn ended(&self) -> Vec<String> {
        self.containers.0.lock().unwrap().1.clone()
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_kubelet_end_in_order_those_of_manifests_last_and_the_report_has_them_all() {
    let scene = Scene::new().await;
    scene.shut_down().await;
    assert_eq!(scene.ended(), ["web", "dns", "etcd by the runtime"]);
    let report = scene.shutdown.reports().latest().unwrap().unwrap();
    let pods: HashSet<&str> = report
        .groups
        .iter()
        .flat_map(|group| &group.pods)
        .filter(|pod| pod.end == winddown_shutdown::PodEnd::Exited)
        .map(|pod| &*pod.name)
        .collect();
    assert_eq!(pods, HashSet::from(["web", "dns", "etcd"]), "{report:?}");
    let node = scene.server.get("nodes/n1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let kinds: HashSet<&str> = conditions.iter().filter_map(|one| one["type"].as_str()).collect();
    let of_ours = ["winddown.dev/CleanShutdown", "winddown.dev/Unprotected"];
    let of_keps = ["GracefulNodeShutdownInProgress", "DrainInProgress"];
    assert_eq!(kinds, of_keps.into_iter().chain(of_ours).collect());
    assert_eq!(scene.server.count("patch", "pods/status"), 0, "that is the kubelet's");
    assert_eq!(scene.server.count("create", "leases"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_server_every_container_still_gets_its_end_before_the_lock_goes() {
    let scene = Scene::new().await;
    scene.server.cut_off().await.unwrap();
    scene.shut_down().await;
    let ended = scene.ended();
    assert_eq!(ended.len(), 3, "{ended:?}");
    assert!(ended.iter().all(|one| one.ends_with("by the runtime")), "{ended:?}");
    assert_eq!(ended[2], "etcd by the runtime");
    assert!(scene.containers.0.lock().unwrap().0.is_empty());
}
