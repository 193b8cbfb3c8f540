//! The loop's interfaces to the machine, the runtimes and the agent.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use winddown_shared::{Freed, NodeStats, Pod, PodStats, RuntimeError};

use crate::decide::Shortage;
use crate::observation::MemoryAvailable;
use crate::reclaim::Reclaimable;
use crate::signal::{PodUsage, Resource, Signal};

/// Measures the node and its pods.
pub trait Signals: Send + Sync + 'static {
    /// The node's current usage. Called up to forty times a second, so it must be cheap. Figures that are older than
    /// 0.1 s must carry their timestamp.
    ///
    /// # Errors
    /// Nothing could be measured. Single missing figures are absent from the answer.
    fn node(&self) -> impl Future<Output = Result<NodeStats, MeasureError>> + Send;

    /// The usage of these pods. Called when something is short, and regularly for pods with local storage limits.
    ///
    /// Only the figures for `wanted` are required. Waits at most 0.4 s for a directory walk; figures that are too old
    /// to choose by are omitted.
    fn pods(&self, pods: &[Pod], wanted: WantedFigures) -> impl Future<Output = PodFigures> + Send;
}

/// The usage of pods.
// Exhaustive: what is known of a pod's usage decides what is done.
#[derive(Clone, Debug, PartialEq)]
pub enum PodFigures {
    /// In the order of the pods; none for a pod that cannot be measured now, and is therefore not evicted. Those beyond
    /// the end of the list cannot either.
    Measured(Vec<Option<PodStats>>),
    /// Nothing here ever measures pods. They are ranked by priority alone, as by a kubelet without statistics.
    Never,
}

impl PodFigures {
    /// No pod can be measured now.
    pub const UNKNOWN: Self = Self::Measured(Vec::new());

    /// The usage of the pod at this place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&PodStats> {
        match self {
            Self::Measured(figures) => figures.get(place)?.as_ref(),
            Self::Never => None,
        }
    }

    /// Whether pods are never measured.
    #[must_use]
    pub fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }
}

/// The figures that are needed for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;
}

/// Something that may make the eviction of a pod unnecessary.
pub trait Alternative: Send + Sync + 'static {
    /// Whether it is in progress, and may end the shortage of this resource. No pod is evicted for it meanwhile.
    fn is_under_way(&self, resource: Resource) -> bool;

    /// Returns what to do instead of this eviction; none if that cannot be enough, or was tried recently. It runs
    /// concurrently with the loop.
    fn instead_of(&self, eviction: &PlannedEviction<'_>) -> Option<AlternativeWork>;
}

/// An eviction that is about to begin.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct PlannedEviction<'a> {
    /// The shortage.
    pub shortage: &'a Shortage,
    /// The pod that would be evicted.
    pub victim: &'a Pod,
    /// Its usage; none if it was not measured.
    pub figures: Option<&'a PodStats>,
    /// The figure that stands for available memory.
    pub memory_available: MemoryAvailable,
    /// The node's free swap at the last sample, in bytes.
    pub swap_free: u64,
}

/// What is done instead of an eviction.
#[non_exhaustive]
pub struct AlternativeWork {
    /// What it does, for people.
    pub does: String,
    /// The work; returns what it did, for people.
    pub work: BoxFuture<'static, String>,
}

impl AlternativeWork {
    /// The work, which returns what it did, and what it does, both for people.
    pub fn new(does: impl Into<String>, work: BoxFuture<'static, String>) -> Self {
        Self { does: does.into(), work }
    }
}

/// Readmits evicted static pods.
pub trait Readmit: Send + Sync + 'static {
    /// Called when the pressure is over: the pod may start if it is still desired. It is admitted like a new pod, and one
    /// that is readmitted `empty` finds nothing of what it left on the disks: neither volumes nor logs.
    ///
    /// If it is still desired and its termination was requested (`PodWorkers::is_termination_requested`), call
    /// `Runtime::forget_pod` if `empty`, then `PodWorkers::update` with `UpdateKind::Create`, and send the gate's state to
    /// the intake once more (`Intake::with_gate`).
    ///
    /// # Errors
    /// What it left cannot be removed; it is readmitted later.
    fn readmit(&self, pod: &Pod, empty: bool) -> BoxFuture<'static, Result<(), RuntimeError>>;

    /// The pods that an earlier agent evicted and that are terminating, or have terminated and were not readmitted: each
    /// once, when it is known. Asked again while there may be more.
    fn earlier_evictions(&self) -> EarlierEvictions {
        EarlierEvictions::default()
    }
}

/// Pods that an earlier agent evicted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EarlierEvictions {
    /// Those that were not returned before.
    pub known: Vec<EarlierEviction>,
    /// Whether more may follow: the source of a pod may not have listed it yet.
    pub may_be_more: bool,
}

impl EarlierEvictions {
    /// Those that were not returned before, and whether more may follow.
    #[must_use]
    pub fn new(known: Vec<EarlierEviction>, may_be_more: bool) -> Self {
        Self { known, may_be_more }
    }
}

/// A pod that an earlier agent evicted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EarlierEviction {
    /// The pod.
    pub pod: Pod,
    /// What is left of its grace period; none once it has terminated.
    pub grace_left: Option<Duration>,
}

impl EarlierEviction {
    /// A pod with the rest of its grace period; none once it has terminated.
    #[must_use]
    pub fn new(pod: Pod, grace_left: Option<Duration>) -> Self {
        Self { pod, grace_left }
    }
}

/// Readmits no pod: where none comes back, as none from an API server does.
impl Readmit for () {
    fn readmit(&self, _: &Pod, _: bool) -> BoxFuture<'static, Result<(), RuntimeError>> {
        ready(Ok(())).boxed()
    }
}

/// The node could not be measured.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct MeasureError {
    /// The operation that failed.
    pub what: String,
    /// The underlying error.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl MeasureError {
    /// The operation failed, for this reason if it is known.
    pub fn new(
        what: impl Into<String>,
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), source }
    }
}

impl WantedFigures {
    pub(crate) const fn of(signal: Signal) -> Self {
        match signal.usage() {
            PodUsage::Figure(_) => Self::Kernel,
            PodUsage::OnDisk(..) => Self::Disk,
        }
    }
}
