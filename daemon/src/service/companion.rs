//! The agent beside a kubelet: the kubelet runs the pods, this agent ends them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSystemInfo;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_cluster::node::{NodeFacts, NodeSettings};
use winddown_companion::{CompanionConfig, RunningContainers, Unasked, companion};
use winddown_cri::PodContainers;
use winddown_shared::{DesiredPods, PodUid, RuntimeError, critical, error_chain};
use winddown_shutdown::{Progress, ProgressPhase};

use super::{ClusterStartError, ConfiguredRuntime, Runs, RuntimeStartError, Service, StartError};
use winddown_config::Config;
use winddown_node::cluster::{Cluster, connect};
use winddown_static_pods::DesiredManifests;

/// How far the node's shutdown is, once there is a node.
pub(super) type Slot = Arc<OnceLock<watch::Receiver<Progress>>>;

/// The variable by which a pod is told its UID, where the agent runs in one.
const OWN_UID: &str = "POD_UID";

/// The container runtime that the kubelet works with.
#[derive(Debug)]
pub struct Containers(PodContainers);

impl Service {
    /// Runs beside a kubelet until a signal ends it.
    ///
    /// # Errors
    /// The credentials for the API server cannot be used, or the container runtime's endpoint is none.
    pub(super) async fn run_companion(self) -> Result<(), StartError> {
        let config = self.configured.configuration().config;
        let connection = connect(&config, &self.identity.name, &self.wall)
            .await
            .map_err(ClusterStartError::Credentials)?;
        let containers = PodContainers::new(&config.container_runtime_endpoint)
            .map_err(RuntimeStartError::Endpoint)?;
        let progress = Slot::default();
        let mut settings = CompanionConfig::new(&*self.identity.name, connection.api_clock());
        settings.eviction_timeout = config.companion.eviction_timeout;
        settings.without_api = config.companion.without_api;
        settings.own_pod =
            std::env::var(OWN_UID).ok().filter(|uid| !uid.is_empty()).map(PodUid::new);
        settings.going_down = goes_down(Arc::clone(&progress));
        let (runtime, follower) = companion(connection.client(), Containers(containers), settings);
        let stop = CancellationToken::new();
        critical::spawn("pods of the kubelet", follower.run(stop.clone()));
        let runs = Runs {
            manifests: Some(as_manifests(runtime.desired())),
            machine: None,
            plugins: vec![Box::new(Cluster {
                connection,
                node: node_settings(&config),
                facts: NodeFacts {
                    info: NodeSystemInfo {
                        boot_id: self.identity.boot_id.clone(),
                        ..NodeSystemInfo::default()
                    },
                    ..NodeFacts::default()
                },
                pods: None,
            })],
            admits_all: true,
            runtime: ConfiguredRuntime::Kubelet(runtime),
            progress: Some(progress),
            stop,
        };
        self.run(runs).await
    }
}

/// Only what a shutdown writes: the rest of the Node object is the kubelet's.
fn node_settings(config: &Config) -> NodeSettings {
    NodeSettings {
        cordon_on_shutdown: config.cluster.cordon_on_shutdown,
        ..NodeSettings::beside_kubelet()
    }
}

fn goes_down(progress: Slot) -> Arc<dyn Fn() -> bool + Send + Sync> {
    Arc::new(move || progress.get().is_some_and(|progress| is_going_down(progress.borrow().phase)))
}

fn is_going_down(phase: ProgressPhase) -> bool {
    matches!(phase, ProgressPhase::Ending | ProgressPhase::Ended | ProgressPhase::Released)
}

/// The API server's pods in the place of a directory's. Its task ends with the runtime.
fn as_manifests(
    mut pods: watch::Receiver<Option<Arc<DesiredPods>>>,
) -> watch::Receiver<Arc<DesiredManifests>> {
    let (tx, rx) = watch::channel(Arc::default());
    critical::spawn("wanted pods", async move {
        let mut generation = 0;
        loop {
            let now = pods.borrow_and_update().clone();
            if let Some(now) = now {
                generation += 1;
                let (pods, complete) = (now.pods.clone(), now.complete);
                let manifests =
                    DesiredManifests { generation, complete, pods, ..DesiredManifests::default() };
                tx.send_replace(Arc::new(manifests));
            }
            tokio::select! {
                changed = pods.changed() => if changed.is_err() { return },
                () = tx.closed() => return,
            }
        }
    });
    rx
}

// === impl Containers ===

impl RunningContainers for Containers {
    async fn running(&self, uid: &PodUid) -> Result<Vec<String>, Unasked> {
        self.0.running(uid).await.map_err(|error| unasked(&error))
    }

    async fn stop(&self, uid: &PodUid, grace: Duration) -> Result<(), Unasked> {
        self.0.stop(uid, grace).await.map_err(|error| unasked(&error))
    }
}

fn unasked(error: &RuntimeError) -> Unasked {
    Unasked::because(error_chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_desired_before_the_api_server_has_said_so() {
        let (tx, rx) = watch::channel(None);
        let mut manifests = as_manifests(rx);
        assert_eq!(manifests.borrow().generation, 0, "not known yet");
        for generation in [1, 2] {
            tx.send_replace(Some(Arc::new(DesiredPods { pods: Vec::new(), complete: true })));
            manifests.changed().await.unwrap();
            let now = manifests.borrow_and_update().clone();
            assert_eq!((now.generation, now.complete), (generation, true));
        }
    }

    #[test]
    fn a_node_goes_down_from_the_first_group_on_and_not_before_it_is_there() {
        let slot = Slot::default();
        let down = goes_down(Arc::clone(&slot));
        assert!(!down());
        let (progress, told) = watch::channel(Progress::default());
        slot.set(told).unwrap();
        for (phase, wanted) in [
            (ProgressPhase::Idle, false),
            (ProgressPhase::Ending, true),
            (ProgressPhase::Released, true),
            (ProgressPhase::Cancelled, false),
        ] {
            progress.send_replace(Progress { phase, ..Progress::default() });
            assert_eq!(down(), wanted, "{phase:?}");
        }
    }
}
