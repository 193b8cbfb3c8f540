//! The node itself, past the API server: its container runtime, its mounts, its kubelet.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use winddown_shared::{PodUid, PodUidMap, StoppedContainer};

/// What is asked of the node that a kubelet runs on.
///
/// Each call is bounded in time by the implementer, and idempotent.
pub trait LocalNode: Send + Sync + 'static {
    /// What the container runtime has: every pod of which a container runs or the sandbox is ready.
    ///
    /// # Errors
    /// The runtime cannot be asked; the answer is unknown, not empty.
    fn look(&self) -> impl Future<Output = Result<PodUidMap<Inside>, Unasked>> + Send;

    /// The ends of the pod's containers that ran at the last [`look`](Self::look), as the kernel tells them; none
    /// unless it tells all of them. Cancel-safe.
    fn ends(&self, uid: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        let _ = uid;
        Vec::new()
    }

    /// Asks the pod's containers to end, all at once, and kills them after `grace`. Resolves when
    /// none of those that ran runs. Dropping the future abandons the wait.
    ///
    /// # Errors
    /// The runtime cannot be asked, or refused.
    fn stop(
        &self,
        uid: &PodUid,
        grace: Duration,
    ) -> impl Future<Output = Result<(), Unasked>> + Send;

    /// How those of the pod's containers ended that do not run; of each the newest.
    ///
    /// # Errors
    /// The runtime cannot be asked.
    fn exits(
        &self,
        uid: &PodUid,
    ) -> impl Future<Output = Result<Vec<StoppedContainer>, Unasked>> + Send {
        let _ = uid;
        async { Ok(Vec::new()) }
    }

    /// Takes the pod's sandboxes down, and with them its network.
    ///
    /// # Errors
    /// The runtime cannot be asked, or refused.
    fn take_down(&self, uid: &PodUid) -> impl Future<Output = Result<(), Unasked>> + Send {
        let _ = uid;
        async { Ok(()) }
    }

    /// What the kubelet still holds for a pod: mount points and prepared claims; whether its object names claims is
    /// `has_claims`. What is in memory ends with the machine and is left out.
    /// [`KubeletHolds`](super::KubeletHolds) knows.
    ///
    /// # Errors
    /// That cannot be read; the answer is unknown, not empty.
    fn held(
        &self,
        uid: &PodUid,
        has_claims: bool,
    ) -> impl Future<Output = Result<Vec<String>, Unasked>> + Send {
        let _ = (uid, has_claims);
        async { Ok(Vec::new()) }
    }

    /// Mount points of volumes that are staged and that no pod has. Of which pod they were is not kept anywhere.
    ///
    /// # Errors
    /// That cannot be read; the answer is unknown, not empty.
    fn unused_volumes(&self) -> impl Future<Output = Result<Vec<String>, Unasked>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Resolves when the kubelet's service, which ran meanwhile, has ended without [`stop_kubelet`](Self::stop_kubelet).
    /// Cancel-safe.
    fn kubelet_ended(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Stops the kubelet's service, so that it starts no container again. Its pods go on running.
    ///
    /// # Errors
    /// It cannot be stopped, or is no service of its own.
    fn stop_kubelet(&self) -> impl Future<Output = Result<(), Unasked>> + Send {
        async { Err(Unasked::because("its service is not known")) }
    }

    /// Starts the kubelet again if [`stop_kubelet`](Self::stop_kubelet) stopped it, also that of an
    /// earlier agent. Otherwise it is left alone.
    ///
    /// # Errors
    /// It cannot be started.
    fn start_kubelet(&self) -> impl Future<Output = Result<(), Unasked>> + Send {
        async { Ok(()) }
    }
}

/// What the container runtime has of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Names of the containers that run; the sandbox is none.
    pub running: Vec<String>,
    /// Whether its sandbox is ready. A kubelet that ends a pod takes it down after the containers, and
    /// makes no other.
    pub has_sandbox: bool,
}

/// The node did not answer, or refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unasked {
    /// What happened, for people.
    pub why: Arc<str>,
}

/// There is nothing to ask: the API server alone counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLocalNode;

// === impl Unasked ===

impl Unasked {
    /// With this reason.
    pub fn because(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into() }
    }
}

// === impl NoLocalNode ===

impl LocalNode for NoLocalNode {
    async fn look(&self) -> Result<PodUidMap<Inside>, Unasked> {
        Err(Unasked::because("no container runtime is configured"))
    }

    async fn stop(&self, _: &PodUid, _: Duration) -> Result<(), Unasked> {
        Err(Unasked::because("no container runtime is configured"))
    }
}
