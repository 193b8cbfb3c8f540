//! What the loop needs from the machine, the runtimes and the agent.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{MemoryFigure, NodeStats, Pod, PodStats, PodUid};

use crate::reclaim::Reclaimable;
use crate::signal::Resource;

/// Measures the node and its pods.
pub trait Signals: Send + Sync + 'static {
    /// The node's current usage. Called up to forty times a second, so it must be cheap. Figures
    /// older than a tenth of a second must carry their timestamp.
    ///
    /// # Errors
    /// Nothing could be measured. Single missing figures are absent from the answer.
    fn node(&self) -> impl Future<Output = Result<NodeStats, MeasureError>> + Send;

    /// What these pods use, in their order; none for a pod that cannot be measured. Asked only when
    /// something is short, and for pods with limits on disks now and then.
    ///
    /// Only the figures for `wanted` are required. Waits at most 0.4 s for a directory walk;
    /// figures that are too old to choose by are omitted.
    fn pods(
        &self,
        pods: &[Pod],
        wanted: Wanted,
    ) -> impl Future<Output = Vec<Option<PodStats>>> + Send;
}

/// The figures that are needed of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Memory of the pod and its containers.
    Memory,
    /// How many processes it has.
    Processes,
    /// What it has on disks.
    Disk,
}

/// Reclaims what no pod needs.
pub trait Reclaim: Send + Sync + 'static {
    /// Reclaims all there is of one kind. Dropping the future stops it after the current item.
    ///
    /// # Errors
    /// Some of it could not be reclaimed.
    fn reclaim(
        &self,
        what: Reclaimable,
    ) -> impl Future<Output = Result<Reclaimed, ReclaimError>> + Send;

    /// Has the kernel take memory back from a running pod until `figure` has fallen by `bytes` or `time` is over; answers
    /// by how much it has. Dropping the future stops it after a few MiB.
    ///
    /// # Errors
    /// The kernel cannot.
    fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> impl Future<Output = Result<u64, ReclaimError>> + Send;
}

/// What was reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reclaimed {
    /// How many containers, files or images.
    pub items: u64,
    /// How many bytes, as far as that is known.
    pub bytes: u64,
}

/// Readmits evicted static pods.
pub trait Readmit: Send + Sync + 'static {
    /// Called when the pressure is over: the pod may start, if it is still wanted. It is admitted
    /// like a new pod.
    fn readmit(&self, pod: &Pod);
}

/// The node could not be measured.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct MeasureError {
    /// What was read.
    pub what: String,
    /// What was the answer.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// A reclaim failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct ReclaimError {
    /// What was attempted.
    pub what: String,
    /// What was the answer.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Wanted {
    pub(crate) const fn of(resource: Resource) -> Self {
        match resource {
            Resource::Memory => Self::Memory,
            Resource::Pids => Self::Processes,
            Resource::EphemeralStorage | Resource::Inodes => Self::Disk,
        }
    }
}
