//! Reclaims what no pod needs, before a pod has to be evicted.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use winddown_shared::{Freed, PodKiller, PodStateProvider, error_chain};

use super::{Completion, EvictionController, paused};
use crate::decide::Shortage;
use crate::history::{DecisionOutcome, EvictionRecord};
use crate::reclaim::Reclaimable;
use crate::seams::{Reclaim, Signals};
use crate::signal::Signal;

const RECLAIM_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between reclaims for one signal, unless a pod has stopped in between.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after a reclaim that hung: eviction must not wait for it again.
const HUNG_RECLAIM_PAUSE: Duration = Duration::from_secs(5 * 60);

pub(super) struct ReclaimDone {
    signal: Signal,
    record: u64,
    reclaimed: Freed,
    hung: bool,
}

impl<K: PodKiller + PodStateProvider, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    pub(super) fn may_reclaim(&self, shortage: &Shortage, now: Instant) -> bool {
        let lately = self.reclaims.last[shortage.signal.index()]
            .is_some_and(|last| now.saturating_duration_since(last) < RECLAIM_INTERVAL);
        let hangs = self.reclaims.hang_until.is_some_and(|until| now < until);
        !shortage.reclaim.is_empty() && !self.policy.shadow && !lately && !hangs
    }

    /// Starts a reclaim, concurrently with the loop: an eviction for memory does not wait for a disk.
    pub(super) fn begin_reclaim(&mut self, shortage: &Shortage) {
        let record =
            EvictionRecord::about(shortage, self.parts.wall.now(), DecisionOutcome::Reclaiming);
        let record = self.shown.note(record);
        self.reclaims.under_way = true;
        let (reclaim, kinds, signal) =
            (self.parts.reclaim.clone(), shortage.reclaim, shortage.signal);
        let paused = paused(self.parts.paused_by.clone());
        let work = async move {
            let mut reclaimed = Freed::default();
            let work = reclaim_each(&*reclaim, kinds, &mut reclaimed);
            let hung = tokio::select! {
                done = timeout(RECLAIM_TIMEOUT, work) => done.is_err(),
                // The images of pods that end now must not count as unused.
                () = paused => false,
            };
            if hung {
                tracing::warn!("reclaiming disk space takes longer than 60s; evicting pods");
            }
            Completion::Reclaimed(ReclaimDone { signal, record, reclaimed, hung })
        };
        self.under_way.push(work.boxed());
    }

    pub(super) fn note_reclaimed(&mut self, done: &ReclaimDone) {
        let now = Instant::now();
        self.reclaims.under_way = false;
        self.reclaims.last[done.signal.index()] = Some(now);
        // The remains may still be there, so the wait for freed space is not extended.
        if !done.hung {
            self.victims.pending_reclaim.note_reclaimed(now);
        }
        self.reclaims.hang_until = done.hung.then(|| now + HUNG_RECLAIM_PAUSE);
        self.shown.conclude(done.record, DecisionOutcome::Reclaimed(done.reclaimed));
    }
}

async fn reclaim_each<R: Reclaim>(reclaim: &R, kinds: &[Reclaimable], sum: &mut Freed) {
    for kind in kinds {
        match reclaim.reclaim(*kind).await {
            Ok(more) => *sum += more,
            // The next measurement shows what was not reclaimed.
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(?kind, error, "cannot reclaim disk space");
            }
        }
    }
}
