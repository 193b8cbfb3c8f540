//! When the file systems are asked anew.
//!
//! Asking them takes a thread that may block, and so wakes several; the kernel's own files cost
//! nothing. While no file system is near a threshold what they last said is used again, with its time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use winddown_eviction::{Observations, Policy};
use winddown_shared::NodeStats;

#[cfg(test)]
mod tests;

/// What file systems said is not used for longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// Samples closer together than this mean fast polling: less than a second, for which a calm look
/// waits, by what a timer may be late for the one before.
const HURRIED: Duration = Duration::from_millis(980);

/// What the file systems last said, and for how long that will do.
pub(super) struct DiskTurns {
    policy: watch::Receiver<Arc<Policy>>,
    /// The policy for the layout of the file systems.
    rules: Policy,
    last_look: Option<Instant>,
    last: Option<Asked>,
    before: Option<Asked>,
}

/// One answer.
#[derive(Clone, Copy)]
struct Asked {
    /// When they were asked; they answered later.
    at: Instant,
    /// Of these only what is said of file systems counts.
    stats: NodeStats,
}

// === impl DiskTurns ===

impl DiskTurns {
    pub(super) fn new(mut policy: watch::Receiver<Arc<Policy>>) -> Self {
        let rules = Policy::clone(&policy.borrow_and_update());
        Self { policy, rules, last_look: None, last: None, before: None }
    }

    /// What they said is of no use any more: others are looked at from now on.
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.before = None;
    }

    /// Notes a look, and says whether the file systems are to be asked for it.
    pub(super) fn are_due(&mut self, now: Instant) -> bool {
        let last_look = self.last_look.replace(now);
        let Some(last) = self.last else { return true };
        self.follow(&last.stats);
        let are_due = last_look.is_none_or(|look| now.saturating_duration_since(look) < HURRIED)
            || now.saturating_duration_since(last.at) >= self.good_for(&last);
        if are_due {
            // A question that is given up leaves them due.
            self.before = self.last.take();
        }
        are_due
    }

    /// Notes what they said when they were asked at `at`; nothing if not all have answered, which
    /// makes them due again.
    pub(super) fn answered(&mut self, at: Instant, stats: Option<&NodeStats>) {
        self.last = stats.map(|stats| Asked { at, stats: *stats });
    }

    /// Enters what they last said, with the time it was said at.
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

    /// How long an answer will do. No time at all near a threshold: when what is left above it is less
    /// than a fifth of the capacity, or less than the threshold itself; nor before two answers tell the
    /// pace. Otherwise a quarter of the time in which that pace leads to the threshold.
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
        times.min().map_or(LONGEST, |time| time.min(LONGEST))
    }
}
