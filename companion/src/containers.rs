//! The container runtime below the kubelet.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::PodUid;

/// What is asked of the container runtime that a kubelet works with.
///
/// Each call is bounded in time by the implementer, and idempotent.
pub trait RunningContainers: Send + Sync + 'static {
    /// Names of the pod's containers that run; the sandbox is none.
    ///
    /// # Errors
    /// The runtime cannot be asked; the answer is unknown, not empty.
    fn running(&self, uid: &PodUid) -> impl Future<Output = Result<Vec<String>, Unasked>> + Send;

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
}

/// The container runtime did not answer, or refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unasked {
    /// What happened, for people.
    pub why: Arc<str>,
}

/// There is no container runtime to ask: the API server alone counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContainers;

// === impl Unasked ===

impl Unasked {
    /// With this reason.
    pub fn because(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into() }
    }
}

// === impl NoContainers ===

impl RunningContainers for NoContainers {
    async fn running(&self, _: &PodUid) -> Result<Vec<String>, Unasked> {
        Err(Unasked::because("no container runtime is configured"))
    }

    async fn stop(&self, _: &PodUid, _: Duration) -> Result<(), Unasked> {
        Err(Unasked::because("no container runtime is configured"))
    }
}
