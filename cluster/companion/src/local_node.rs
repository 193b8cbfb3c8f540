//! Access to the node that bypasses the API server: its container runtime, its mounts, its kubelet.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use winddown_shared::{FoundPod, PodUid, PodUidMap, StoppedContainer, StoppedContainers};

/// Queries and actions on the node that a kubelet runs on.
///
/// Each call is bounded in time by the implementer, and idempotent.
pub trait KubeletHost: LocalContainers + LocalHooks + LocalHolds + LocalKubelet {}

impl<N: LocalContainers + LocalHooks + LocalHolds + LocalKubelet> KubeletHost for N {}

/// The pods in the container runtime.
pub trait LocalContainers: Send + Sync + 'static {
    /// Every pod with a running container or a ready sandbox, according to the container runtime.
    ///
    /// # Errors
    /// The runtime cannot be queried; the answer is unknown, not empty.
    fn look(&self) -> impl Future<Output = Result<PodUidMap<RuntimePodState>, NodeError>> + Send;

    /// Every pod with a running container or a ready sandbox, as its kubelet recorded it in the container runtime.
    ///
    /// # Errors
    /// The runtime cannot be queried; the answer is unknown, not empty.
    fn pods(&self) -> impl Future<Output = Result<Vec<FoundPod>, NodeError>> + Send;

    /// Futures that resolve when the kernel reports the exits of the pod's containers that ran at the last
    /// [`look`](Self::look); none unless it reports all of them. Cancel-safe.
    fn ends(&self, uid: &PodUid) -> Vec<BoxFuture<'static, ()>>;

    /// Stops the pod's containers, each with its own stop signal. Resolves when none of them runs any more. Dropping the
    /// future abandons the wait; hooks and stops continue.
    ///
    /// # Errors
    /// The runtime cannot be queried, or refused.
    fn stop(
        &self,
        uid: &PodUid,
        stop: &ContainerStop,
    ) -> impl Future<Output = Result<StoppedContainers, NodeError>> + Send;

    /// How the pod's exited containers ended; for each name, its newest container.
    ///
    /// # Errors
    /// The runtime cannot be queried.
    fn exits(
        &self,
        uid: &PodUid,
    ) -> impl Future<Output = Result<Vec<StoppedContainer>, NodeError>> + Send;
}

/// The preStop hooks that the kubelet runs.
pub trait LocalHooks: Send + Sync + 'static {
    /// Records that the kubelet runs the preStop hooks of the pod's containers, so that no later
    /// [`stop`](LocalContainers::stop) runs them too, of this agent or the next. Cancel-safe.
    ///
    /// # Errors
    /// The runtime cannot be queried; nothing is recorded.
    fn hooks_begin(&self, uid: &PodUid) -> impl Future<Output = Result<(), NodeError>> + Send;

    /// The pods of which an earlier agent has recorded that ([`hooks_begin`](Self::hooks_begin)) and whose containers run.
    /// Cancel-safe.
    ///
    /// # Errors
    /// The runtime cannot be queried; the answer is unknown, not empty.
    fn with_begun_hooks(&self) -> impl Future<Output = Result<Vec<PodUid>, NodeError>> + Send;
}

/// What a pod whose containers have stopped still holds.
pub trait LocalHolds: Send + Sync + 'static {
    /// Stops the pod's sandboxes, which releases its network.
    ///
    /// # Errors
    /// The runtime cannot be queried, or refused.
    fn take_down(&self, uid: &PodUid) -> impl Future<Output = Result<(), NodeError>> + Send;

    /// What the kubelet still holds for a pod: mount points and prepared claims. `has_claims`: whether its object names
    /// claims. Mounts in memory vanish with the machine and are left out.
    /// [`KubeletHolds`](super::KubeletHolds) provides this.
    ///
    /// # Errors
    /// It cannot be read; the answer is unknown, not empty.
    fn held(
        &self,
        uid: &PodUid,
        has_claims: bool,
    ) -> impl Future<Output = Result<Vec<String>, NodeError>> + Send;

    /// Mount points of staged volumes that no pod uses. Which pod used them is not recorded anywhere.
    ///
    /// # Errors
    /// They cannot be read; the answer is unknown, not empty.
    fn unused_volumes(&self) -> impl Future<Output = Result<Vec<String>, NodeError>> + Send;
}

/// The kubelet's service.
pub trait LocalKubelet: Send + Sync + 'static {
    /// Whether no kubelet runs, however it ended. While that is not known, one may. Bounded in time, and cancel-safe.
    fn is_kubelet_absent(&self) -> impl Future<Output = bool> + Send;

    /// Resolves when no kubelet runs any more, unless because of a successful [`stop_kubelet`](Self::stop_kubelet).
    /// Cancel-safe.
    fn kubelet_ended(&self) -> impl Future<Output = ()> + Send;

    /// Whether an earlier agent's [`stop_kubelet`](Self::stop_kubelet) stopped the kubelet's service, and it does not run.
    /// Cancel-safe.
    fn is_kubelet_stopped(&self) -> impl Future<Output = bool> + Send;

    /// Stops the kubelet's service, so that it restarts no container. Its pods keep running.
    ///
    /// # Errors
    /// It cannot be stopped, or is not a service of its own.
    fn stop_kubelet(&self) -> impl Future<Output = Result<(), NodeError>> + Send;

    /// Starts the kubelet again if [`stop_kubelet`](Self::stop_kubelet) stopped it, even if an
    /// earlier agent did. Otherwise does nothing.
    ///
    /// # Errors
    /// It cannot be started.
    fn start_kubelet(&self) -> impl Future<Output = Result<(), NodeError>> + Send;
}

/// The state of one pod in the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimePodState {
    /// Names of the running containers, without the sandbox.
    pub running: Vec<String>,
    /// Whether its sandbox is ready. A kubelet that stops a pod stops the sandbox after the containers, and
    /// creates no new one.
    pub has_sandbox: bool,
}

/// How the containers of a pod are stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStop {
    /// How long after the request a container that still runs is killed; at least
    /// [`Grace::SHORTEST`](winddown_shared::Grace::SHORTEST).
    pub grace: Duration,
    /// Whether each container's preStop hook, as its kubelet recorded it, runs before its stop signal, within `grace`.
    pub runs_hooks: bool,
    /// Names of the pod's sidecars, in the order in which they are asked to stop: each after all other containers and
    /// the sidecars before it have exited. All other containers are asked at once.
    pub sidecars: Vec<String>,
}

/// The node could not be queried, or refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NodeError {
    /// What happened, as text for users.
    pub why: Arc<str>,
}

// === impl ContainerStop ===

impl ContainerStop {
    /// Asks all containers at once, without their hooks.
    pub fn at_once(grace: Duration) -> Self {
        Self { grace, runs_hooks: false, sidecars: Vec::new() }
    }
}

// === impl NodeError ===

impl NodeError {
    /// An error with this reason.
    pub fn because(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into() }
    }
}
