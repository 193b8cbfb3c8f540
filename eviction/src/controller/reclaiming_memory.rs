//! Has the kernel reclaim memory from the pod that would otherwise be evicted.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use winddown_shared::{MemoryFigure, Pod, PodKiller, PodStats, error_chain};

use super::{Completion, EvictionController};
use crate::decide::Act;
use crate::history::{DecisionOutcome, EvictionRecord};
use crate::reclaim::reclaimable_memory;
use crate::seams::{Reclaim, ReclaimError, Signals};
use crate::signal::Resource;

/// The pause between two attempts: a pod that needs its memory has it back by then.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after an attempt that timed out: the disk with the swap hangs.
const HUNG_RECLAIM_PAUSE: Duration = Duration::from_secs(5 * 60);
/// How long to wait for an attempt beyond its own time limit.
const RECLAIM_OVERRUN: Duration = Duration::from_millis(500);

/// How much of a pod's memory to reclaim, and how long that may take.
#[derive(Clone, Copy)]
pub(super) struct ReclaimAttempt {
    figure: MemoryFigure,
    bytes: u64,
    time: Duration,
}

/// The result of an attempt.
pub(super) struct MemoryReclaimDone {
    record: u64,
    outcome: DecisionOutcome,
    pause: Duration,
}

/// The loop's state of memory reclaim.
#[derive(Default)]
pub(super) struct MemoryReclaim {
    pub(super) is_under_way: bool,
    not_before: Option<Instant>,
    /// The node's free swap at the last sample, in bytes.
    pub(super) swap_free: u64,
}

impl<K: PodKiller, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    /// Whether a memory reclaim is in progress that may save the pod that would be evicted.
    pub(super) fn waits_for_memory(&self, act: &Act) -> bool {
        act.resource() == Resource::Memory && self.reclaims.memory.is_under_way
    }

    /// What to reclaim from the victim instead of evicting it; none if that cannot be enough or was tried recently.
    pub(super) fn memory_to_reclaim(
        &self,
        act: &Act,
        victim: Option<&PodStats>,
        now: Instant,
    ) -> Option<ReclaimAttempt> {
        let time = self.policy.memory_reclaim?;
        let MemoryReclaim { is_under_way, not_before, swap_free } = self.reclaims.memory;
        let lately = not_before.is_some_and(|not_before| now < not_before);
        if act.resource() != Resource::Memory || is_under_way || lately || self.policy.shadow {
            return None;
        }
        let (figure, most) = reclaimable_memory(self.policy.memory_available, victim?, swap_free)?;
        let deficit = u64::try_from(act.deficit).ok().filter(|deficit| *deficit <= most)?;
        // Reclaims half a threshold more: a pod that still grows would bring the shortage back at once.
        let margin = u64::try_from(act.threshold.value() / 2).unwrap_or(0);
        let bytes = deficit.saturating_add(margin).min(most);
        Some(ReclaimAttempt { figure, bytes, time })
    }

    /// Starts the reclaim, concurrently with the loop. No pod is evicted for memory meanwhile.
    pub(super) fn begin_reclaiming_memory(
        &mut self,
        act: &Act,
        victim: &Pod,
        attempt: ReclaimAttempt,
    ) {
        self.log_met(act);
        self.reclaims.memory.is_under_way = true;
        let from = victim.label().to_string();
        let outcome = DecisionOutcome::ReclaimingMemory { from: from.clone() };
        let record = self.shown.note(EvictionRecord::about(act, self.parts.wall.now(), outcome));
        let (reclaim, uid, pod) =
            (self.parts.reclaim.clone(), victim.uid().clone(), victim.label().clone());
        let ReclaimAttempt { figure, bytes, time } = attempt;
        let work = async move {
            let begun = Instant::now();
            let reclaimed = reclaim.reclaim_memory(&uid, figure, bytes, time);
            let taken = timeout(time + RECLAIM_OVERRUN, reclaimed).await;
            let took = begun.elapsed();
            let pause = if taken.is_ok() { RECLAIM_INTERVAL } else { HUNG_RECLAIM_PAUSE };
            let taken = taken.unwrap_or_else(|_| {
                Err(ReclaimError { what: format!("still not done after {took:?}"), source: None })
            });
            let took_ms = took.as_millis();
            let taken = taken.map_err(|error| error_chain(&error));
            match &taken {
                Ok(bytes) => {
                    tracing::info!(%pod, bytes, took_ms, "the kernel took memory back from this pod");
                }
                Err(error) => {
                    tracing::warn!(%pod, error, took_ms, "no memory could be taken back from this pod");
                }
            }
            let outcome = DecisionOutcome::reclaimed_memory(from, taken, took);
            Completion::ReclaimedMemory(MemoryReclaimDone { record, outcome, pause })
        };
        self.under_way.push(work.boxed());
    }

    pub(super) fn note_reclaimed_memory(&mut self, done: MemoryReclaimDone) {
        self.reclaims.memory.is_under_way = false;
        self.reclaims.memory.not_before = Some(Instant::now() + done.pause);
        self.shown.conclude(done.record, done.outcome);
    }
}
