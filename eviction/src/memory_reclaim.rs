//! Has the kernel reclaim memory from the pod that would otherwise be evicted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use winddown_shared::{Freed, MemoryFigure, Mutex, PodStats, PodUid, RuntimeError, error_chain};

use crate::observation::MemoryAvailable;
use crate::seams::{Alternative, AlternativeWork, PlannedEviction};
use crate::signal::Resource;

/// The pause between two attempts: a pod that needs its memory has it back by then.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after an attempt that timed out: the disk with the swap hangs.
const HUNG_RECLAIM_PAUSE: Duration = Duration::from_secs(5 * 60);
/// How long to wait for an attempt beyond its own time limit.
const RECLAIM_OVERRUN: Duration = Duration::from_millis(500);
/// The target of the log lines, which filters and readers of the journal know.
const TARGET: &str = "winddown_eviction::controller::reclaiming_memory";

/// Reclaims memory from running pods.
pub trait ReclaimMemory: Send + Sync + 'static {
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
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;
}

/// Swaps out what it can of a pod's memory instead of evicting the pod, where that can be enough.
pub struct MemoryReclaim<R> {
    reclaim: Arc<R>,
    /// How long the kernel may take; with none, pods are evicted without an attempt.
    time: watch::Receiver<Option<Duration>>,
    attempts: Arc<Mutex<Attempts>>,
}

#[derive(Default)]
struct Attempts {
    is_under_way: bool,
    not_before: Option<Instant>,
}

impl<R> MemoryReclaim<R> {
    /// Reclaims through `reclaim`, for at most `time`, which may change; with none, pods are evicted without an attempt.
    pub fn new(reclaim: R, time: watch::Receiver<Option<Duration>>) -> Self {
        Self { reclaim: Arc::new(reclaim), time, attempts: Arc::default() }
    }
}

impl<R: ReclaimMemory> Alternative for MemoryReclaim<R> {
    fn is_under_way(&self, resource: Resource) -> bool {
        resource.row().is_swapped_out && self.attempts.lock().is_under_way
    }

    fn instead_of(&self, eviction: &PlannedEviction<'_>) -> Option<AlternativeWork> {
        let PlannedEviction { shortage, victim, figures, memory_available, swap_free } = *eviction;
        let time = (*self.time.borrow())?;
        let mut now = self.attempts.lock();
        let lately = now.not_before.is_some_and(|not_before| Instant::now() < not_before);
        if !shortage.resource().row().is_swapped_out || now.is_under_way || lately {
            return None;
        }
        let (figure, most) = reclaimable_memory(memory_available, figures?, swap_free)?;
        let deficit = u64::try_from(shortage.deficit).ok().filter(|deficit| *deficit <= most)?;
        // Reclaims half a threshold more: a pod that still grows would bring the shortage back at once.
        let margin = u64::try_from(shortage.threshold.value() / 2).unwrap_or(0);
        let bytes = deficit.saturating_add(margin).min(most);
        now.is_under_way = true;
        let (reclaim, all) = (Arc::clone(&self.reclaim), Arc::clone(&self.attempts));
        let (uid, pod) = (victim.uid().clone(), victim.pod_ref().clone());
        let does = format!("reclaiming memory from {pod}");
        let work = async move {
            let begun = Instant::now();
            let reclaimed = reclaim.reclaim_memory(&uid, figure, bytes, time);
            let taken = timeout(time + RECLAIM_OVERRUN, reclaimed).await;
            let took = begun.elapsed();
            let pause = if taken.is_ok() { RECLAIM_INTERVAL } else { HUNG_RECLAIM_PAUSE };
            let not_before = Some(Instant::now() + pause);
            *all.lock() = Attempts { is_under_way: false, not_before };
            let taken = taken.unwrap_or_else(|_| {
                Err(RuntimeError::Timeout { what: "the kernel".into(), after: took })
            });
            let took_ms = took.as_millis();
            match taken.map_err(|error| error_chain(&error)) {
                Ok(Freed { bytes, .. }) => {
                    tracing::info!(
                        target: TARGET, %pod, bytes, took_ms,
                        "the kernel reclaimed memory from this pod"
                    );
                    format!("reclaimed {bytes} bytes of memory from {pod} in {took_ms} ms")
                }
                Err(error) => {
                    tracing::warn!(target: TARGET, %pod, error, took_ms, "cannot reclaim memory from this pod");
                    format!("cannot reclaim memory from {pod}: {error}")
                }
            }
        };
        Some(AlternativeWork { does, work: work.boxed() })
    }
}

/// How many bytes of a pod's memory the kernel can reclaim so that more counts as available, and the figure that shows
/// it. None if the pod was not measured, or if reclaiming would not help.
fn reclaimable_memory(
    counted: MemoryAvailable,
    pod: &PodStats,
    swap_free: u64,
) -> Option<(MemoryFigure, u64)> {
    let to_swap = pod.swappable?.min(swap_free);
    match counted {
        // File cache counts as available already.
        MemoryAvailable::MemAvailable => Some((MemoryFigure::Anonymous, to_swap)),
        MemoryAvailable::WorkingSet => {
            Some((MemoryFigure::WorkingSet, to_swap.saturating_add(pod.active_file?)))
        }
    }
}

#[cfg(test)]
mod tests;
