//! The loop's interfaces to the machine, the runtimes and the agent.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{MemoryFigure, NodeStats, Pod, PodStats, PodUid};

use crate::reclaim::Reclaimable;
use crate::signal::{PodUsage, Signal};

/// Measures the node and its pods.
pub trait Signals: Send + Sync + 'static {
    /// The node's current usage. Called up to forty times a second, so it must be cheap. Figures that are older than
    /// 0.1 s must carry their timestamp.
    ///
    /// # Errors
    /// Nothing could be measured. Single missing figures are absent from the answer.
    fn node(&self) -> impl Future<Output = Result<NodeStats, MeasureError>> + Send;

    /// The usage of these pods, in their order; none for a pod that cannot be measured. Called when something is short,
    /// and regularly for pods with local storage limits.
    ///
    /// Only the figures for `wanted` are required. Waits at most 0.4 s for a directory walk; figures that are too old
    /// to choose by are omitted.
    fn pods(
        &self,
        pods: &[Pod],
        wanted: WantedFigures,
    ) -> impl Future<Output = Vec<Option<PodStats>>> + Send;
}

/// The figures that are needed for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedFigures {
    /// What the kernel counts: memory and tasks.
    Kernel,
    /// Usage of local disks.
    Disk,
}

/// Reclaims what no pod needs.
pub trait Reclaim: Send + Sync + 'static {
    /// Reclaims everything of one kind. Dropping the future stops it after the current item.
    ///
    /// # Errors
    /// Some items could not be reclaimed.
    fn reclaim(
        &self,
        what: Reclaimable,
    ) -> impl Future<Output = Result<Reclaimed, ReclaimError>> + Send;

    /// Has the kernel reclaim memory from a running pod until `figure` has fallen by `bytes` or `time` is over; returns
    /// by how much it fell. Dropping the future stops it after a few MiB.
    ///
    /// # Errors
    /// The kernel cannot reclaim memory from this pod.
    fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> impl Future<Output = Result<u64, ReclaimError>> + Send;
}

/// The amount that was reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// The number of containers, files or images.
    pub items: u64,
    /// The number of bytes, as far as it is known.
    pub bytes: u64,
}

/// Readmits evicted static pods.
pub trait Readmit: Send + Sync + 'static {
    /// Called when the pressure is over: the pod may start if it is still desired. It is admitted like a new pod.
    fn readmit(&self, pod: &Pod);

    /// The pods that an earlier agent evicted and that are terminating, or have terminated and were not readmitted.
    fn evicted_before(&self) -> Vec<EvictedBefore> {
        Vec::new()
    }
}

/// A pod that an earlier agent evicted.
#[derive(Clone, Debug)]
pub struct EvictedBefore {
    /// The pod.
    pub pod: Pod,
    /// What is left of its grace period; none once it has terminated.
    pub grace_left: Option<Duration>,
}

/// The node could not be measured.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct MeasureError {
    /// The operation that failed.
    pub what: String,
    /// The underlying error.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// A reclaim failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct ReclaimError {
    /// The operation that failed.
    pub what: String,
    /// The underlying error.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl WantedFigures {
    pub(crate) const fn of(signal: Signal) -> Self {
        match signal.usage() {
            PodUsage::Figure(_) => Self::Kernel,
            PodUsage::OnDisk(..) => Self::Disk,
        }
    }
}
