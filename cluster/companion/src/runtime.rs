//! A kubelet as a [`Runtime`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{
    DesiredPods, EvictionConstraints, Grace, KillReason, Pod, PodRuntimeStatus, PodStopped, PodUid,
    Runtime, RuntimeError, RuntimePod, SyncedPod,
};

use super::api::NodePods;
use super::config::CompanionConfig;
use super::follow::KubeletFollower;
use super::local_node::{KubeletHost, NodeError};
use super::stop::{MOUNT_CHECK_INTERVAL, StopCore};

/// How long a kubelet is given to unmount volumes before the clean-up fails.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call waits for the first list of pods.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Where kubelets write logs unless their `podLogsDir` says otherwise.
const KUBELETS_POD_LOGS: &str = "/var/log/pods";

/// The pods that a kubelet runs, as reported by the API server. See the [module](super).
pub struct KubeletRuntime<N> {
    core: Arc<StopCore<NodePods, N>>,
}

/// Creates a runtime on `client`, and the follower that keeps it up to date. Requests start with the follower.
pub fn companion<N: KubeletHost>(
    client: kube::Client,
    node: N,
    config: CompanionConfig,
) -> (KubeletRuntime<N>, KubeletFollower<N>) {
    let api = NodePods::new(client, config.node.clone());
    let core = Arc::new(StopCore::new(api, node, config));
    (KubeletRuntime { core: Arc::clone(&core) }, KubeletFollower { core })
}

impl<N> KubeletRuntime<N> {
    /// The pods that are bound to this node; `None` before the first list. Not complete while only the container runtime
    /// has listed them.
    pub fn desired(&self) -> watch::Receiver<Option<Arc<DesiredPods>>> {
        self.core.known.desired()
    }

    /// The current problem with the API server, if any.
    pub fn trouble(&self) -> Option<String> {
        self.core.trouble()
    }

    /// Whether the API server answers, and refuses to show the pods of this node. One that is away does not.
    pub fn is_refused(&self) -> bool {
        self.core.known.is_refused()
    }

    /// Whether a shutdown now would wait for an API server that cannot be used, as
    /// [`waits_for_api`](crate::CompanionConfig::waits_for_api) asks: only the pods of manifests would be stopped meanwhile.
    pub fn awaits_api_server(&self) -> bool {
        self.core.awaits_api_server()
    }
}

impl<N> std::fmt::Debug for KubeletRuntime<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeletRuntime").field("config", &self.core.config).finish_non_exhaustive()
    }
}

/// Measures and reclaims nothing: the kubelet evicts its pods and cleans up after them itself.
impl<N: KubeletHost> Runtime for KubeletRuntime<N> {
    fn pod_logs(&self) -> Option<&Path> {
        Some(Path::new(KUBELETS_POD_LOGS))
    }

    /// Starts nothing: returns the status as the kubelet reports it.
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        Ok(self.core.sync(pod).into())
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.core.stop(uid, pod, grace).await
    }

    /// Resolves when the kubelet has unmounted the pod's volumes, unprepared its claims and released its
    /// network.
    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let until = Instant::now() + UNMOUNT_TIMEOUT;
        loop {
            self.core.give_network_back(uid).await.map_err(|why| unread(&why))?;
            let mounts = self.mounts(uid).await?;
            let Some(first) = mounts.first() else { return Ok(()) };
            if Instant::now() >= until {
                let what = format!("the kubelet has not released {first} yet");
                return Err(RuntimeError::Failed { what, source: None });
            }
            sleep(MOUNT_CHECK_INTERVAL).await;
        }
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.core.known.forget(uid);
        self.core.unused_volumes.forget(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        match self.core.known.status(uid) {
            Some(status) => Ok(status),
            None => self.core.known.listed().map(|()| PodRuntimeStatus::default()),
        }
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        let mut desired = self.desired();
        let first = desired.wait_for(Option::is_some);
        match timeout(FIRST_LIST_TIMEOUT, first).await {
            Ok(_) => Ok(self.core.known.list()),
            Err(_) => self.core.known.listed().map(|()| self.core.known.list()),
        }
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        self.core.held(uid).await.map_err(|why| unread(&why))
    }

    async fn eviction_constraints(
        &self,
        pods: &[Pod],
    ) -> Result<Vec<(PodUid, EvictionConstraints)>, RuntimeError> {
        self.core.consent(pods).await
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.core.known.changes()
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        self.core.refuses_stop(uid, reason)
    }
}

fn unread(why: &NodeError) -> RuntimeError {
    RuntimeError::Failed { what: why.to_string(), source: None }
}
