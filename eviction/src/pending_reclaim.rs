//! What pods that have ended had on disks, and of tasks, until it has come back.
//!
//! Their files go after them: a container runtime removes a writable layer when its garbage collector
//! runs next (containerd's `pause_threshold`), which can be seconds after it was told to. Until then the
//! disk is as full as before, and that says nothing of whether enough was done. So it is with the tasks of a
//! fork bomb: they count until the first process has collected the last of them.

use std::time::Duration;

use tokio::time::Instant;

use crate::condition::Condition;
use crate::observation::Observations;
use crate::signal::Signal;

#[cfg(test)]
mod tests;

/// What a pod ended leaves is waited for so long, as the kubelet waits for its clean-up.
const LONGEST: Duration = Duration::from_secs(30);
/// And so long when nothing would be left before that.
const IN_A_HURRY: Duration = Duration::from_secs(5);

/// What a pod leaves behind, by [`Signal::index`]: bytes, inodes or tasks.
pub(crate) type Amounts = [i64; Signal::COUNT];

/// What is expected back, by signal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PendingReclaim([Option<Expected>; Signal::COUNT]);

/// What is expected back in one place.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// All that is expected.
    amount: i64,
    /// All that has come back since the first pod was asked to end: the sum of the rises, because
    /// somebody else may be writing on.
    back: i64,
    /// What was left when it was last measured.
    left: i64,
    /// When the last of the pods had ended; none: one is ending still.
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    /// From when it is waited.
    at: Instant,
    /// What was left then.
    left: i64,
    /// What the pods left was given back since.
    given_back: bool,
}

/// The signals that tell of such a shortage.
fn of(condition: Condition) -> impl Iterator<Item = Signal> {
    Signal::ALL.into_iter().filter(move |signal| signal.condition() == condition)
}

// === impl PendingReclaim ===

impl PendingReclaim {
    /// A pod was asked to end for such a shortage, and leaves so much.
    pub(crate) fn ask(
        &mut self,
        condition: Condition,
        amounts: &Amounts,
        now: Instant,
        observed: &Observations,
    ) {
        for signal in of(condition) {
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

    /// The pods that were asked for such a shortage have ended.
    pub(crate) fn note_end(&mut self, condition: Condition, now: Instant) {
        for signal in of(condition) {
            if let Some(expected) = &mut self.0[signal.index()] {
                expected.ended = Some(Ended { at: now, left: expected.left, given_back: false });
            }
        }
    }

    /// What ended pods leave was given back. Counts once after each end: what is still missing then does
    /// not come sooner by giving back again.
    pub(crate) fn note_given_back(&mut self, now: Instant) {
        for expected in self.0.iter_mut().flatten() {
            if let Some(ended) = expected.ended.as_mut().filter(|ended| !ended.given_back) {
                *ended = Ended { at: now, left: expected.left, given_back: true };
            }
        }
    }

    /// A pod does not end: nothing can be told of what comes back.
    pub(crate) fn forget(&mut self, condition: Condition) {
        for signal in of(condition) {
            self.0[signal.index()] = None;
        }
    }

    /// Takes what was measured into account.
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

    /// Whether it is too early to end another pod for this: what the last ones had is still to come.
    pub(crate) fn is_awaited(&self, signal: Signal, now: Instant) -> bool {
        self.0[signal.index()].is_some_and(|expected| expected.is_awaited(now))
    }
}

// === impl Expected ===

impl Expected {
    fn is_awaited(&self, now: Instant) -> bool {
        let Some(ended) = self.ended else { return false };
        // About all of it: pods are measured some seconds before, and others write meanwhile.
        if i128::from(self.back) * 4 >= i128::from(self.amount) * 3 {
            return false;
        }
        let waited = now.saturating_duration_since(ended.at);
        waited < if self.runs_out(&ended, waited) { IN_A_HURRY } else { LONGEST }
    }

    /// Whether nothing would be left before the wait is over, at the pace since the pods ended.
    fn runs_out(&self, ended: &Ended, waited: Duration) -> bool {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let fallen = i128::from(ended.left.saturating_sub(self.left));
        let rest = nanos(LONGEST.saturating_sub(waited));
        self.left <= 0 || i128::from(self.left) * nanos(waited) < fallen.saturating_mul(rest)
    }
}
