//! Disk space and tasks that stopped pods are expected to free.
//!
//! A pod's files are removed some time after it has stopped: a container runtime removes a writable layer when its
//! garbage collector next runs (containerd's `pause_threshold`), which can be seconds later. Until then the disk is as
//! full as before, but that does not mean that more pods must be evicted. The same holds for the tasks of a fork bomb,
//! which count until their parent, or PID 1, has reaped the last of them.

use std::time::Duration;
use winddown_shared::PressureCondition;

use tokio::time::Instant;

use crate::observations::Observations;
use crate::signal::Signal;

#[cfg(test)]
mod tests;

/// How long to wait for freed space after a pod has stopped, as the kubelet waits for its clean-up.
const FREED_SPACE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait if the resource would be exhausted before that.
const HURRIED_TIMEOUT: Duration = Duration::from_secs(5);

/// The amounts that a pod leaves behind, by [`Signal::index`], in the signal's unit.
pub(crate) type Amounts = [i64; Signal::COUNT];

/// The amounts that are expected to be freed, by signal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingReclaim([Option<Expected>; Signal::COUNT]);

/// The amount that is expected to be freed for one signal.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// The total amount.
    amount: i64,
    /// The amount freed since the first pod was asked to stop: the sum of all increases, because other pods may keep
    /// writing.
    back: i64,
    /// What was available at the last measurement.
    left: i64,
    /// When the last of the pods stopped; none while one is still terminating.
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    /// The start of the wait.
    at: Instant,
    /// The amount that was available then.
    left: i64,
    /// Whether the pods' remains were reclaimed since.
    reclaimed: bool,
}

// === impl PendingReclaim ===

impl PendingReclaim {
    /// Notes that a pod was asked to stop for this condition, and what it will leave behind.
    pub(crate) fn ask(
        &mut self,
        condition: PressureCondition,
        amounts: &Amounts,
        now: Instant,
        observed: &Observations,
    ) {
        for signal in Signal::of(condition) {
            let amount = amounts[signal.index()];
            let Some(found) = observed.get(signal).filter(|_| amount > 0) else { continue };
            let expected = &mut self.0[signal.index()];
            let open =
                expected.filter(|expected| expected.ended.is_none() || expected.is_awaited(now));
            let (before, back) = open.map_or((0, 0), |expected| (expected.amount, expected.back));
            *expected = Some(Expected {
                amount: before.saturating_add(amount),
                back,
                left: open.map_or(found.available, |expected| expected.left),
                ended: None,
            });
        }
    }

    /// Notes that all pods that were evicted for this condition have stopped.
    pub(crate) fn note_end(&mut self, condition: PressureCondition, now: Instant) {
        for signal in Signal::of(condition) {
            if let Some(expected) = &mut self.0[signal.index()] {
                expected.ended = Some(Ended { at: now, left: expected.left, reclaimed: false });
            }
        }
    }

    /// Notes that the remains of stopped pods were reclaimed, which restarts the wait. Counts once per stop: repeating
    /// the reclaim frees nothing sooner.
    pub(crate) fn note_reclaimed(&mut self, now: Instant) {
        for expected in self.0.iter_mut().flatten() {
            if let Some(ended) = expected.ended.as_mut().filter(|ended| !ended.reclaimed) {
                *ended = Ended { at: now, left: expected.left, reclaimed: true };
            }
        }
    }

    /// Notes that a pod does not stop: what it would free is unknown.
    pub(crate) fn forget(&mut self, condition: PressureCondition) {
        for signal in Signal::of(condition) {
            self.0[signal.index()] = None;
        }
    }

    /// Adds a new measurement.
    pub(crate) fn observe(&mut self, observed: &Observations) {
        for signal in Signal::ALL {
            let (Some(expected), Some(found)) = (&mut self.0[signal.index()], observed.get(signal))
            else {
                continue;
            };
            let rise = found.available.saturating_sub(expected.left).max(0);
            expected.back = expected.back.saturating_add(rise);
            expected.left = found.available;
        }
    }

    /// Whether it is too early to evict another pod for this signal, because space is still expected to be freed.
    pub(crate) fn is_awaited(&self, signal: Signal, now: Instant) -> bool {
        self.0[signal.index()].is_some_and(|expected| expected.is_awaited(now))
    }
}

// === impl Expected ===

impl Expected {
    fn is_awaited(&self, now: Instant) -> bool {
        let Some(ended) = self.ended else { return false };
        // Three quarters are enough: pods were measured some seconds before, and others write meanwhile.
        if i128::from(self.back) * 4 >= i128::from(self.amount) * 3 {
            return false;
        }
        let waited = now.saturating_duration_since(ended.at);
        waited < if self.runs_out(&ended, waited) { HURRIED_TIMEOUT } else { FREED_SPACE_TIMEOUT }
    }

    /// Whether the resource would run out before the wait is over, at the rate since the pods stopped.
    fn runs_out(&self, ended: &Ended, waited: Duration) -> bool {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let fallen = i128::from(ended.left.saturating_sub(self.left));
        let rest = nanos(FREED_SPACE_TIMEOUT.saturating_sub(waited));
        self.left <= 0 || i128::from(self.left) * nanos(waited) < fallen.saturating_mul(rest)
    }
}
