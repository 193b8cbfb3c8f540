//! The agent next to a kubelet: the kubelet runs the pods, this agent ends them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::NodeSystemInfo;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use winddown_cluster::node::{NodeFacts, NodeSettings};
use winddown_companion::kubelet::service;
use winddown_companion::{
    CompanionConfig, ContainerStop, KubeletHolds, KubeletRoot, LocalContainers, LocalHolds,
    LocalHooks, LocalKubelet, NodeError, RuntimePodState, SharedLook, companion,
};
use winddown_cri::PodContainers;
use winddown_host::OneThread;
use winddown_shared::{
    FoundPod, InhibitorState, PodUid, PodUidMap, RuntimeError, StoppedContainer, StoppedContainers,
    critical, error_chain,
};
use winddown_shutdown::{Progress, ProgressPhase};

use super::cluster::{after_nodes, volatile};
use super::kubelet::KubeletService;
use super::shims::may_run_containers;
use super::{ClusterStartError, ConfiguredRuntime, Runs, RuntimeStartError, Service, StartError};
use winddown_config::{Config, WithoutApi};
use winddown_node::NodePlugin;
use winddown_node::cluster::{Cluster, connect_early};

/// The environment variable with the UID of the agent's own pod, if it runs in one.
const OWN_UID: &str = "POD_UID";

/// The preStop hooks that have begun, in the volatile directory.
const BEGUN_HOOKS: &str = "hooks-begun";
/// How long reading the kubelet's directory may take; it may be on a disk that hangs.
const KUBELET_DIRECTORY_TIMEOUT: Duration = Duration::from_secs(2);

/// What the agent needs from a machine that a kubelet runs: its container runtime, the kubelet's service and files.
#[derive(Debug)]
pub struct KubeletNode {
    containers: PodContainers,
    kubelet: KubeletService,
    root: KubeletRoot,
    holds: SharedLook<Result<Arc<KubeletHolds>, NodeError>>,
    reading: OneThread,
}

impl Service {
    /// Runs next to a kubelet until a signal stops the agent.
    ///
    /// # Errors
    /// The container runtime's endpoint cannot be used, or the node could not start. Credentials that are not there yet,
    /// an API server and a container runtime that do not answer are no errors: the lock comes first.
    pub(super) async fn run_companion(self) -> Result<(), StartError> {
        let config = self.configured.configuration().config;
        let connection = connect_early(&config, &self.identity.name, &self.wall)
            .await
            .map_err(ClusterStartError::Credentials)?;
        let containers = PodContainers::new(&config.node.container_runtime_endpoint)
            .map_err(RuntimeStartError::Endpoint)?
            .record_hooks(volatile(&config).join(BEGUN_HOOKS));
        let host = KubeletNode {
            containers,
            kubelet: KubeletService::new(volatile(&config)),
            root: KubeletRoot::new(&config.companion.kubelet_root_dir),
            holds: SharedLook::default(),
            reading: OneThread::default(),
        };
        let (node, node_goes_down) = watch::channel(false);
        let (machine, machine_goes_down) = watch::channel(false);
        let mut settings = CompanionConfig::new(&*self.identity.name, connection.api_clock());
        settings.eviction_timeout = config.companion.eviction_timeout;
        settings.waits_for_api = config.companion.without_api == WithoutApi::Wait;
        settings.own_pod =
            std::env::var(OWN_UID).ok().filter(|uid| !uid.is_empty()).map(PodUid::new);
        settings.going_down = node_goes_down;
        if settings.own_pod.is_some() {
            settings.may_stop_kubelet = machine_goes_down.clone();
        }
        let (runtime, follower) = companion(connection.client(), host, settings);
        let (stop, api) = (CancellationToken::new(), Some(connection.health()));
        critical::spawn("pods of the kubelet", follower.run(stop.clone()));
        let after_nodes = after_nodes(&config, &connection);
        let cluster = Cluster {
            connection,
            node: node_settings(&config),
            facts: node_facts(&self.identity.boot_id),
            names: watch::Sender::default(),
            pods: None,
        };
        let mut plugins: Vec<Box<dyn NodePlugin<ConfiguredRuntime>>> = vec![Box::new(cluster)];
        plugins.extend(after_nodes.map(|plugin| Box::new(plugin) as _));
        let runs = Runs {
            source: Some(runtime.desired().into()),
            machine: None,
            plugins,
            node_api: None,
            admits_all: true,
            runtime: ConfiguredRuntime::Kubelet(runtime),
            api,
            going_down: Some(GoingDown { node, machine }),
            stop,
        };
        let ended = self.run(runs).await;
        tell_of_stopped_kubelet(volatile(&config), *machine_goes_down.borrow());
        ended
    }
}

/// Says that the kubelet stays stopped, as after a drain with a deadline. On a machine that goes down it may.
fn tell_of_stopped_kubelet(volatile: &Path, machine_goes_down: bool) {
    if let Some(unit) = service::stopped(volatile).filter(|_| !machine_goes_down) {
        tracing::warn!(
            "{unit} stays stopped without an agent: if this machine stays up, `systemctl start {unit}` starts it"
        );
    }
}

/// Receives what goes down.
pub(super) struct GoingDown {
    /// Whether the node does: its pods terminate.
    node: watch::Sender<bool>,
    /// Whether the machine does, as the login manager says.
    machine: watch::Sender<bool>,
}

/// Settings for what a shutdown writes alone: the kubelet owns the rest of the Node object.
fn node_settings(config: &Config) -> NodeSettings {
    NodeSettings {
        cordon_on_shutdown: config.cluster.cordon_on_shutdown,
        ..NodeSettings::beside_kubelet()
    }
}

/// Keeps what goes down up to date. Returns when the node has stopped.
pub(super) async fn log_going_down(
    progress: watch::Receiver<Progress>,
    lock: watch::Receiver<InhibitorState>,
    going_down: GoingDown,
) {
    let GoingDown { node, machine } = going_down;
    tokio::join!(log_node(progress, node), log_machine(lock, machine));
}

async fn log_machine(mut lock: watch::Receiver<InhibitorState>, machine: watch::Sender<bool>) {
    loop {
        let is_down = lock.borrow_and_update().preparing;
        machine.send_if_modified(|was| std::mem::replace(was, is_down) != is_down);
        if lock.changed().await.is_err() {
            return;
        }
    }
}

/// Sends `true` when a shutdown begins to end its first group, and `false` when a shutdown is cancelled or an
/// earlier agent's shutdown does not resume.
async fn log_node(mut progress: watch::Receiver<Progress>, going_down: watch::Sender<bool>) {
    let begun = progress.wait_for(|progress| progress.phase != ProgressPhase::Idle);
    if timeout(CompanionConfig::RESUME_TIMEOUT, begun).await.is_err() {
        going_down.send_replace(false);
    }
    let mut last = ProgressPhase::Idle;
    loop {
        let phase = progress.borrow_and_update().phase;
        match phase {
            ProgressPhase::Ending | ProgressPhase::Ended | ProgressPhase::Released => {
                going_down.send_if_modified(|is_down| !std::mem::replace(is_down, true));
            }
            ProgressPhase::Cancelled if last != phase => drop(going_down.send_replace(false)),
            _ => {}
        }
        last = phase;
        if progress.changed().await.is_err() {
            return;
        }
    }
}

fn node_facts(boot_id: &str) -> NodeFacts {
    let info = NodeSystemInfo { boot_id: boot_id.to_owned(), ..NodeSystemInfo::default() };
    NodeFacts { info, ..NodeFacts::default() }
}

impl KubeletNode {
    /// Whether no process of the machine holds a container.
    async fn holds_no_container(&self) -> bool {
        let look = self.reading.run(|()| may_run_containers(Path::new("/proc")));
        matches!(timeout(KUBELET_DIRECTORY_TIMEOUT, look).await, Ok(Ok(Ok(false))))
    }

    async fn holds(&self) -> Result<Arc<KubeletHolds>, NodeError> {
        let look = async || {
            let root = self.root.clone();
            let runtime = self.containers.process().await.map_err(|error| node_error(&error))?;
            let reading = self.reading.run(move |()| root.look(runtime));
            match timeout(KUBELET_DIRECTORY_TIMEOUT, reading).await {
                Ok(Ok(found)) => found.map(Arc::new),
                Ok(Err(panicked)) => Err(NodeError::because(panicked.to_string())),
                Err(_) => Err(NodeError::because("the kubelet's directory does not answer")),
            }
        };
        self.holds.look(look).await
    }
}

impl LocalContainers for KubeletNode {
    async fn look(&self) -> Result<PodUidMap<RuntimePodState>, NodeError> {
        let found = self.containers.look().await.map_err(|error| node_error(&error))?;
        let states = found.into_iter().map(|(uid, pod)| {
            (uid, RuntimePodState { running: pod.running, has_sandbox: pod.has_sandbox })
        });
        Ok(states.collect())
    }

    async fn pods(&self) -> Result<Vec<FoundPod>, NodeError> {
        match self.containers.describe().await {
            Ok(found) => Ok(found),
            // As on a machine whose runtime was never started.
            Err(_) if self.holds_no_container().await => Ok(Vec::new()),
            Err(error) => Err(node_error(&error)),
        }
    }

    fn ends(&self, uid: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        self.containers.ends(uid)
    }

    async fn stop(
        &self,
        uid: &PodUid,
        stop: &ContainerStop,
    ) -> Result<StoppedContainers, NodeError> {
        let ContainerStop { grace, runs_hooks, sidecars, .. } = stop;
        let stopped = self.containers.stop(uid, *grace, *runs_hooks, sidecars).await;
        stopped.map_err(|error| node_error(&error))
    }

    async fn exits(&self, uid: &PodUid) -> Result<Vec<StoppedContainer>, NodeError> {
        self.containers.exits(uid).await.map_err(|error| node_error(&error))
    }
}

impl LocalHooks for KubeletNode {
    async fn hooks_begin(&self, uid: &PodUid) -> Result<(), NodeError> {
        self.containers.hooks_begin(uid).await.map_err(|error| node_error(&error))
    }

    async fn with_begun_hooks(&self) -> Result<Vec<PodUid>, NodeError> {
        self.containers.with_begun_hooks().await.map_err(|error| node_error(&error))
    }
}

impl LocalHolds for KubeletNode {
    async fn take_down(&self, uid: &PodUid) -> Result<(), NodeError> {
        self.containers.take_down(uid).await.map_err(|error| node_error(&error))
    }

    async fn held(&self, uid: &PodUid, has_claims: bool) -> Result<Vec<String>, NodeError> {
        self.holds().await?.of(uid, has_claims)
    }

    async fn unused_volumes(&self) -> Result<Vec<String>, NodeError> {
        Ok(self.holds().await?.unused_volumes())
    }
}

impl LocalKubelet for KubeletNode {
    async fn is_kubelet_absent(&self) -> bool {
        self.kubelet.is_absent().await
    }

    async fn kubelet_ended(&self) {
        self.kubelet.ended().await;
    }

    async fn is_kubelet_stopped(&self) -> bool {
        self.kubelet.is_stopped().await
    }

    async fn stop_kubelet(&self) -> Result<(), NodeError> {
        self.kubelet.stop().await.map_err(|error| NodeError::because(error_chain(&error)))
    }

    async fn start_kubelet(&self) -> Result<(), NodeError> {
        self.kubelet.start().await.map_err(|error| NodeError::because(error_chain(&error)))
    }
}

fn node_error(error: &RuntimeError) -> NodeError {
    NodeError::because(error_chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_goes_down_from_the_first_group_on_and_stays_up_when_that_is_called_off() {
        let (progress, told) = watch::channel(Progress::default());
        let (tx, mut down) = watch::channel(false);
        tokio::spawn(log_node(told, tx));
        let said_within = async |down: &mut watch::Receiver<bool>, seconds| {
            let changed = timeout(Duration::from_secs(seconds), down.changed()).await;
            changed.ok().map(|_| *down.borrow_and_update())
        };
        assert_eq!(said_within(&mut down, 10).await, None, "an earlier shutdown may go on");
        assert_eq!(said_within(&mut down, 10).await, Some(false));
        for (phase, wanted) in [
            (ProgressPhase::Ending, Some(true)),
            (ProgressPhase::Ended, None),
            (ProgressPhase::Released, None),
            (ProgressPhase::Cancelled, Some(false)),
            (ProgressPhase::Cancelled, None),
        ] {
            progress.send_replace(Progress { phase, ..Progress::default() });
            assert_eq!(said_within(&mut down, 1).await, wanted, "{phase:?}");
        }
    }
}
