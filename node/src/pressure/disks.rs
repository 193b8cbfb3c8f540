//! Decides when the file systems are queried again.
//!
//! A query takes a thread that may block, and so wakes several threads, while the kernel's own files cost
//! nothing. While no file system is near a threshold, the last answer is used again, with its time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use winddown_eviction::{Observations, Policy};
use winddown_shared::NodeStats;

#[cfg(test)]
mod tests;

/// The longest time for which an answer of the file systems is used.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(10);

/// Samples closer together than this mean fast polling. Slightly less than the second between calm samples,
/// because the timer of the previous sample may have been late.
const FAST_POLLING_GAP: Duration = Duration::from_millis(980);

/// The last answer of the file systems, and for how long it may be used.
pub(super) struct DiskTurns {
    policy: watch::Receiver<Arc<Policy>>,
    /// The policy for the current layout of the file systems.
    rules: Policy,
    last_look: Option<Instant>,
    last: Option<Asked>,
    before: Option<Asked>,
}

/// One answer of the file systems.
#[derive(Clone, Copy)]
struct Asked {
    /// When they were queried, which is before they answered.
    at: Instant,
    /// The statistics, of which only those of file systems are used.
    stats: NodeStats,
}

// === impl DiskTurns ===

impl DiskTurns {
    pub(super) fn new(mut policy: watch::Receiver<Arc<Policy>>) -> Self {
        let rules = Policy::clone(&policy.borrow_and_update());
        Self { policy, rules, last_look: None, last: None, before: None }
    }

    /// Discards the answers, because other file systems are measured from now on.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.before = None;
    }

    /// Notes a sample, and returns whether the file systems have to be queried for it.
    pub(super) fn are_due(&mut self, now: Instant) -> bool {
        let last_look = self.last_look.replace(now);
        let Some(last) = self.last else { return true };
        self.follow(&last.stats);
        let are_due = last_look
            .is_none_or(|look| now.saturating_duration_since(look) < FAST_POLLING_GAP)
            || now.saturating_duration_since(last.at) >= self.good_for(&last);
        if are_due {
            // If the query is cancelled, the file systems are still due.
            self.before = self.last.take();
        }
        are_due
    }

    /// Notes the answer to the query at `at`; `None` if not all file systems have answered, which makes them due again.
    pub(super) fn answered(&mut self, at: Instant, stats: Option<&NodeStats>) {
        self.last = stats.map(|stats| Asked { at, stats: *stats });
    }

    /// Copies the last answer into `stats`, with its time.
    pub(super) fn enter(&self, stats: &mut NodeStats) {
        let Some(Asked { stats: said, .. }) = self.last else { return };
        stats.nodefs = said.nodefs;
        stats.imagefs = said.imagefs;
        stats.containerfs = said.containerfs;
        stats.layout = said.layout;
    }

    fn follow(&mut self, stats: &NodeStats) {
        let layout = stats.layout.unwrap_or_default();
        let is_changed = self.policy.has_changed().unwrap_or(false);
        if is_changed || layout != self.rules.layout() {
            self.rules = self.policy.borrow_and_update().for_layout(layout).0;
        }
    }

    /// How long an answer may be used. Zero near a threshold, i.e. if the amount above it is less than a fifth of
    /// the capacity or less than the threshold itself, and before the rate is known from two answers. Otherwise a
    /// quarter of the time after which the threshold would be reached at that rate.
    fn good_for(&self, last: &Asked) -> Duration {
        let Some(before) = &self.before else { return Duration::ZERO };
        let apart = last.at.saturating_duration_since(before.at);
        let memory = self.rules.memory_available;
        let (now, before) =
            (Observations::of(&last.stats, memory), Observations::of(&before.stats, memory));
        let thresholds = self.rules.thresholds().iter();
        let times = thresholds.filter(|threshold| threshold.signal.file_system().is_some());
        let times = times.filter_map(|threshold| {
            let observed = now.get(threshold.signal)?;
            let limit = threshold.quantity(observed.capacity, true).value();
            let left = observed.available.saturating_sub(limit);
            if left < observed.capacity / 5 || left < limit {
                return Some(Duration::ZERO);
            }
            let before = before.get(threshold.signal)?;
            let fallen = before.available.saturating_sub(observed.available);
            let steps = u32::try_from(left / fallen.max(1)).unwrap_or(u32::MAX);
            (fallen > 0).then(|| apart.saturating_mul(steps) / 4)
        });
        times.min().map_or(MAX_ANSWER_AGE, |time| time.min(MAX_ANSWER_AGE))
    }
}
