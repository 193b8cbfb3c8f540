//! A node on in-memory containers and a scripted login manager.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::watch;
use winddown_api_client::{ClusterConfig, Connection, Credentials};
use winddown_cluster::after_boot::AfterBootPolicy;
use winddown_cluster::after_nodes::AfterNodes;
use winddown_cluster::node::{NodeFacts, NodeSettings};
use winddown_cluster::pods::OrphanPolicy;
use winddown_config::{
    Config, EvictionSettings, GuardedNamespace, ShutdownPeriods, ShutdownSettings,
};
use winddown_control::StatusApi;
use winddown_control::api::DirectoryUse;
use winddown_host::UsagePaths;
use winddown_node::cluster::after_nodes::ShutdownAfterNodes;
use winddown_node::cluster::{Cluster, NodeRuntime, PodsParts};
use winddown_node::{Configured, DiskRoom, Node, NodeIdentity};
use winddown_shared::testing::{FakeInhibitor, FakeRuntime, pod_with};
use winddown_shared::{
    CONFIG_SOURCE_ANNOTATION, LockState, NodeHandle, Plugin, PluginName, Pod, WallClock, WallTime,
};
use winddown_shutdown::{BootClock, BootMark};
use winddown_static_pods::DesiredManifests;

pub(crate) type TestNode = Node<FakeRuntime>;

pub(crate) struct Bed {
    pub(crate) node: TestNode,
    pub(crate) runtime: FakeRuntime,
    pub(crate) login: FakeInhibitor,
    manifests: watch::Sender<Arc<DesiredManifests>>,
    _state: TempDir,
}

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

impl Bed {
    /// Creates a node with a grace period of 30 s, 10 s of it for critical pods, on a login manager that gives 40 s.
    pub(crate) fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap(), None)
    }

    /// Like [`new`](Self::new), but in a cluster, with `state` as its state directory.
    pub(crate) fn in_cluster(state: TempDir, cluster: Cluster) -> Self {
        Self::on(state, Some(cluster))
    }

    /// Like [`new`](Self::new), but after a boot that left only the mark that an agent ran.
    pub(crate) fn after_a_power_cut() -> Self {
        let state = tempfile::tempdir().unwrap();
        BootMark::after(None, "the boot before", WallTime::UNIX_EPOCH).store(state.path()).unwrap();
        Self::on(state, None)
    }

    fn on(state: TempDir, cluster: Option<Cluster>) -> Self {
        let manifests = watch::Sender::new(Arc::new(DesiredManifests::default()));
        let (runtime, login) = (FakeRuntime::default(), FakeInhibitor::holding(secs(40)));
        let mut config = Config {
            // Independent of how full the real disk is.
            eviction: thresholds(),
            shutdown: ShutdownSettings {
                guard: vec![GuardedNamespace::default()],
                start_group_timeout: secs(1),
                ..ShutdownPeriods::Total { total: secs(30), critical: secs(10) }.into()
            },
            ..Config::default()
        };
        config.access.state_directory = state.path().to_owned();
        let wall = WallClock::fixed(WallTime::from_second(1_800_000_000).unwrap());
        let configured = Configured::of(config, wall.now());
        let shutdown = configured.shutdown(Arc::new(login.clone())).refused_signals(|| 3);
        let released = || watch::Sender::new(LockState::Released).subscribe();
        let after_nodes = cluster.as_ref().map(|cluster| ShutdownAfterNodes {
            connection: cluster.connection.clone(),
            settings: AfterNodes { selector: "role=worker".into(), wait: secs(1), priority: 0 },
        });
        let node = Node::builder(Arc::new(runtime.clone()))
            .clocks(wall, BootClock::new(Duration::default))
            .settings(configured.settings())
            .source(manifests.subscribe())
            .identity(NodeIdentity { name: "n1".into(), boot_id: "boot".into() })
            .plugin(shutdown)
            .plugin(configured.guard(None, |_| released()))
            .plugin(configured.ordered_start())
            .plugin(DiskRoom::new([(DirectoryUse::State, state.path().to_owned())]))
            .plugin(configured.preemption())
            .plugin(configured.eviction(measured(&state)))
            .plugins(cluster)
            .plugins(after_nodes)
            .plugin(Idle)
            .start()
            .unwrap();
        Self { node, runtime, login, manifests, _state: state }
    }

    /// Makes these the pods of the manifests directory.
    pub(crate) fn want(&self, pods: &[Pod]) {
        self.manifests.send_modify(|now| {
            let generation = now.generation + 1;
            let pods = pods.to_vec();
            *now = Arc::new(DesiredManifests {
                generation,
                complete: true,
                pods,
                ..DesiredManifests::default()
            });
        });
    }

    /// Like [`want`](Self::want), and lets the node run for a (paused) second.
    pub(crate) async fn run(&self, pods: &[Pod]) {
        self.want(pods);
        tokio::time::sleep(secs(1)).await;
    }

    pub(crate) async fn released(&self) {
        use winddown_shared::Inhibitor;
        let mut state = self.login.state();
        let released = state.wait_for(|s| s.lock == LockState::Released);
        tokio::time::timeout(secs(300), released).await.unwrap().unwrap();
        tokio::time::sleep(secs(1)).await;
    }

    pub(crate) fn scrape(&self) -> String {
        self.node.metrics()
    }
}

pub(crate) fn pod(name: &str, priority: i32, grace: i64) -> Pod {
    pod_with(&format!("uid-{name}"), name, |pod| {
        let source = (CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned());
        pod.metadata.annotations = Some([source].into());
        let spec = pod.spec.get_or_insert_default();
        spec.priority = Some(priority);
        spec.termination_grace_period_seconds = Some(grace);
    })
}

/// Returns a cluster that is reached with `kubeconfig`; it uses the real clock, like the server.
pub(crate) async fn cluster_parts(state: &Path, kubeconfig: &str) -> Cluster {
    let path = state.join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let credentials = Credentials::Kubeconfig { path, context: None };
    let wall = WallClock::new(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Timestamp::UNIX_EPOCH.checked_add(now).unwrap_or(Timestamp::UNIX_EPOCH)
    });
    Cluster {
        connection: Connection::open(ClusterConfig::new(credentials), wall).await.unwrap(),
        node: NodeSettings::default(),
        facts: NodeFacts::default(),
        names: watch::Sender::default(),
        pods: Some(PodsParts {
            state: state.to_owned(),
            volatile: state.join("volatile"),
            volumes: state.join("cluster").join("volumes"),
            secret_volumes: state.join("volumes"),
            ended: AfterBootPolicy::Delete,
            orphans: OrphanPolicy::Stop,
            runtime: watch::Sender::new(NodeRuntime::default()).subscribe(),
        }),
    }
}

/// Returns where 1 GiB of memory with 900 MiB available is measured, and 512 MiB of swap with half of it free.
fn measured(state: &TempDir) -> UsagePaths {
    let (proc, cgroup) = (state.path().join("proc"), state.path().join("cgroup"));
    std::fs::create_dir_all(&proc).unwrap();
    std::fs::create_dir_all(&cgroup).unwrap();
    let memory = "MemTotal: 1048576 kB\nMemFree: 921600 kB\nMemAvailable: 921600 kB\nInactive(file): 0 kB\n\
         SwapTotal: 524288 kB\nSwapFree: 262144 kB\nZswap: 1024 kB\nZswapped: 4096 kB\n";
    std::fs::write(proc.join("meminfo"), memory).unwrap();
    UsagePaths { proc, cgroup, ..UsagePaths::of_host(state.path()) }
}

fn thresholds() -> EvictionSettings {
    EvictionSettings {
        hard: [("memory.available".into(), "100Mi".into())].into(),
        ..EvictionSettings::default()
    }
}

/// A plug-in that stops no pod.
struct Idle;

impl Plugin for Idle {
    fn name(&self) -> PluginName {
        PluginName::new("idle")
    }

    fn run(self: Box<Self>, _: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Returns the samples, without comments.
pub(crate) fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// Returns the value of one sample, given its name and labels.
pub(crate) fn value(text: &str, sample: &str) -> f64 {
    let line = samples(text).find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in:\n{text}")).parse().unwrap()
}
