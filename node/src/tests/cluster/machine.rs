//! A machine whose agents come and go, and its API server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeAddress;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use tokio::sync::watch;
use winddown_api_client::{ClusterConfig, Connection, Credentials};
use winddown_apiserver::ApiServer;
use winddown_cluster::after_boot::AfterBootPolicy;
use winddown_cluster::node::{NodeFacts, NodeSettings};
use winddown_cluster::pods::OrphanPolicy;
use winddown_shared::testing::{FakeInhibitor, FakeRuntime};
use winddown_shared::{Inhibitor, LockState, Mutex, PodUid, WallClock};
use winddown_shutdown::ShutdownReport;

use super::super::{BootClock, NodeIdentity, bench_with, fit, held};
use super::{LONG, NODE, pod_path};
use crate::cluster::{Cluster, NodeRuntime, PodsParts};
use crate::{Node, Settings, ShutdownHandle};
use winddown_static_pods::DesiredManifests;

/// A machine and its API server. Agents come and go.
pub(super) struct Machine {
    pub(super) server: ApiServer,
    pub(super) runtime: FakeRuntime,
    /// Whether pods have to fit on the node.
    pub(super) has_labels: bool,
    /// Those of the machine, and how often they were read.
    pub(super) addresses: Arc<Mutex<(Vec<IpAddr>, usize)>>,
    pub(super) settings: watch::Sender<Settings>,
    /// Those of the Node object.
    pub(super) names: watch::Sender<Vec<String>>,
    /// When the system was started, by the boot clock.
    pub(super) system_start: Duration,
    /// When the first agent was started.
    origin: tokio::time::Instant,
    state: tempfile::TempDir,
    volatile: tempfile::TempDir,
}

/// A running agent.
pub(super) struct Agent {
    pub(super) node: Node<FakeRuntime>,
    pub(super) shutdown: ShutdownHandle,
    pub(super) login: FakeInhibitor,
    manifests: watch::Sender<Arc<DesiredManifests>>,
    state: tempfile::TempDir,
}

fn wall() -> WallClock {
    winddown_host::machine::wall_clock()
}

impl Machine {
    pub(super) async fn new() -> Self {
        let addresses = Arc::new(Mutex::new((Vec::new(), 0)));
        let host_ips = Arc::clone(&addresses);
        Self {
            addresses,
            names: watch::Sender::default(),
            settings: watch::Sender::new(Settings {
                host_ips: Arc::new(move || {
                    let mut addresses = host_ips.lock();
                    addresses.1 += 1;
                    addresses.0.clone()
                }),
                status_update_frequency: 60 * LONG,
                ..Settings::default()
            }),
            server: ApiServer::start().await.unwrap(),
            runtime: FakeRuntime::default(),
            has_labels: false,
            system_start: Duration::ZERO,
            origin: tokio::time::Instant::now(),
            state: tempfile::tempdir().unwrap(),
            volatile: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) async fn parts(&self) -> Cluster {
        let kubeconfig = self.state.path().join("kubeconfig");
        std::fs::write(&kubeconfig, self.server.kubeconfig()).unwrap();
        let credentials = Credentials::Kubeconfig { path: kubeconfig, context: None };
        let connection = Connection::open(ClusterConfig::new(credentials), wall()).await.unwrap();
        let amounts =
            [("cpu", "2"), ("memory", "4Gi"), ("pods", "9"), ("ephemeral-storage", "9Gi")];
        let amounts = amounts.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned())));
        Cluster {
            connection,
            node: NodeSettings::default(),
            facts: NodeFacts {
                capacity: amounts.clone().into(),
                allocatable: amounts.into(),
                addresses: vec![NodeAddress { type_: "Hostname".into(), address: "n1".into() }],
                ..NodeFacts::default()
            },
            names: self.names.clone(),
            pods: Some(PodsParts {
                state: self.state.path().to_owned(),
                volatile: self.volatile.path().to_owned(),
                volumes: self.state.path().join("volumes"),
                secret_volumes: self.volatile.path().join("volumes"),
                ended: AfterBootPolicy::Delete,
                orphans: OrphanPolicy::Stop,
                runtime: watch::Sender::new(NodeRuntime::default()).subscribe(),
            }),
        }
    }

    /// Starts an agent with an empty manifests directory.
    pub(super) async fn agent(&self) -> Agent {
        self.agent_with(self.parts().await)
    }

    /// As [`agent`](Self::agent), with changed parts.
    pub(super) fn agent_with(&self, cluster: Cluster) -> Agent {
        self.agent_on(tempfile::tempdir().unwrap(), held(), cluster)
    }

    /// As [`agent_with`](Self::agent_with), with what an earlier agent left.
    pub(super) fn agent_on(
        &self,
        state: tempfile::TempDir,
        login: FakeInhibitor,
        cluster: Cluster,
    ) -> Agent {
        let origin = self.origin;
        let clock = BootClock::new(move || Duration::from_secs(1000) + origin.elapsed())
            .with_system_start(self.system_start);
        let bench = bench_with(state, clock, self.runtime.clone(), login.clone(), |parts| {
            parts.cluster = Some(cluster);
            let readable = Arc::new(AtomicBool::new(true));
            parts.machine = self.has_labels.then(|| fit::machine(readable));
            parts.settings = Some(self.settings.subscribe());
            parts.wall = wall();
            parts.identity = NodeIdentity { name: "n1".into(), boot_id: "boot".into() };
        });
        let agent = Agent {
            node: bench.node.clone(),
            shutdown: bench.shutdown.clone(),
            login,
            manifests: bench.manifests.clone(),
            state: bench.state,
        };
        agent.has_manifests(&[]);
        agent
    }

    /// Creates a pod that is bound to this node and returns its UID.
    pub(super) fn bind(&self, name: &str) -> PodUid {
        self.bind_with(name, &json!({}))
    }

    /// The same with these fields of the spec.
    pub(super) fn bind_with(&self, name: &str, spec: &Value) -> PodUid {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": "n1", "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "main", "image": "none"}],
            },
            "status": {"phase": "Pending"},
        });
        let fields = object["spec"].as_object_mut().unwrap();
        fields.extend(spec.as_object().unwrap().clone());
        let made = self.server.apply(object).unwrap();
        PodUid::new(made["metadata"]["uid"].as_str().unwrap())
    }

    /// Makes the agent's record of a pod unreadable.
    pub(super) fn lose_record(&self, uid: &PodUid) {
        let records = self.volatile.path().join("api-pods/boot");
        std::fs::write(records.join(format!("{uid}.json")), "{").unwrap();
    }

    /// Creates a volume of a pod, and returns its directory.
    pub(super) fn make_volume(&self, uid: &PodUid) -> PathBuf {
        let volume = self.state.path().join("volumes").join(uid.as_str()).join("settings");
        std::fs::create_dir_all(&volume).unwrap();
        volume
    }

    pub(super) fn starts(&self, uid: &PodUid) -> usize {
        self.runtime.starts().iter().filter(|started| *started == uid).count()
    }

    pub(super) async fn until_pod(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) {
        let path = pod_path(name);
        let what = format!("{name} {what}");
        let found =
            self.server.until(&what, |all| all.get(&path).filter(|pod| is(pod)).map(|_| ())).await;
        if found.is_err() {
            panic!("{what}: {:#?}", self.server.get(&path));
        }
    }

    pub(super) async fn until_phase(&self, name: &str, phase: &str) {
        self.until_pod(name, &format!("is {phase}"), |pod| pod["status"]["phase"] == *phase).await;
    }

    pub(super) async fn until_node(&self, what: &str, is: impl Fn(&Value) -> bool) {
        let found = self.server.until(what, |all| is(&*all.get(NODE)?).then_some(())).await;
        if found.is_err() {
            panic!("{what}: {:#?}", self.server.get(NODE));
        }
    }
}

impl Agent {
    pub(super) fn has_manifests(&self, pods: &[winddown_shared::Pod]) {
        self.manifests.send_modify(|now| {
            let generation = now.generation + 1;
            let (pods, rest) = (pods.to_vec(), DesiredManifests::default());
            *now = Arc::new(DesiredManifests { generation, complete: true, pods, ..rest });
        });
    }

    /// Has the login manager announce a shutdown, and waits until the lock is released and the report is stored, which a
    /// busy disk does later.
    pub(super) async fn go_down(&self) -> ShutdownReport {
        self.login.prepare();
        let mut state = self.login.state();
        let released = state.wait_for(|s| s.lock == LockState::Released);
        tokio::time::timeout(LONG, released).await.unwrap().unwrap();
        let latest = || self.shutdown.reports().latest().unwrap();
        super::until("the report is stored", || latest().is_some()).await;
        latest().unwrap()
    }

    /// Stops it, and returns its state directory.
    pub(super) async fn stop(self) -> tempfile::TempDir {
        tokio::time::timeout(LONG, self.node.shut_down()).await.unwrap();
        self.state
    }
}
