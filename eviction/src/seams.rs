//! What the loop needs of the machine, the runtimes and the agent.

use std::sync::Arc;

use winddown_shared::{NodeStats, Pod, PodStats};

use crate::reclaim::Reclaimable;
use crate::signal::Resource;

/// Measures the node and its pods.
pub trait Signals: Send + Sync + 'static {
    /// What the node uses now. Called up to ten times a second: cheap, and never from a cache that
    /// is older than a tenth of a second, except for what says so with its time.
    ///
    /// # Errors
    /// Nothing could be measured. What only partly could is absent in the answer.
    fn node(&self) -> impl Future<Output = Result<NodeStats, MeasureError>> + Send;

    /// What these pods use, in their order; none for a pod that cannot be measured. Asked only when
    /// something is short, and for pods with limits on disks now and then.
    ///
    /// Only what `wanted` needs has to be there. Waits no longer than 0.4 s for a walk through
    /// directories; figures that are too old to choose by are not told.
    fn pods(
        &self,
        pods: &[Pod],
        wanted: Wanted,
    ) -> impl Future<Output = Vec<Option<PodStats>>> + Send;
}

/// What is wanted of a pod's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Memory of the pod and its containers.
    Memory,
    /// How many processes it has.
    Processes,
    /// What it has on disks.
    Disk,
}

/// Gives back what no pod misses.
pub trait Reclaim: Send + Sync + 'static {
    /// Gives back all there is of one kind. Dropping the future stops it after the current item.
    ///
    /// # Errors
    /// Some of it could not be given back.
    fn reclaim(
        &self,
        what: Reclaimable,
    ) -> impl Future<Output = Result<Reclaimed, ReclaimError>> + Send;
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reclaimed {
    /// How many containers, files or images.
    pub items: u64,
    /// How many bytes, as far as that is known.
    pub bytes: u64,
}

/// Starts a static pod anew that was ended because the node ran short.
pub trait Readmit: Send + Sync + 'static {
    /// The pressure is over: the pod may start, if it is still wanted. It is admitted like a new one.
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

/// Something could not be given back.
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
