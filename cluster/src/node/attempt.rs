//! Tracks when a kind of write may be attempted.

use std::time::Duration;

use tokio::time::Instant;

use winddown_api_client::refusal::Refusal;
use winddown_shared::Backoff;

/// The result of one kind of write, and when it may be retried.
#[derive(Clone, Debug)]
pub(super) struct WriteAttempt {
    failures: Backoff,
    /// The backoff against another writer that keeps undoing what is written.
    fights: Backoff,
    fought: Option<Instant>,
    not_before: Option<Instant>,
    /// The inputs that were last written.
    done: Option<u64>,
    outage_logged: bool,
}

/// A quiet time after which a dispute with another writer counts as over.
const DISPUTE_OVER_AFTER: Duration = Duration::from_secs(600);

/// The wait after a refusal that only an outside change can lift.
const REFUSAL_RETRY_DELAY: Duration = Duration::from_secs(60);

impl WriteAttempt {
    /// For writes that the cluster waits for: retried within 10 s.
    pub(super) fn eager() -> Self {
        Self::new(Backoff::new(Duration::from_millis(100), Duration::from_secs(10)))
    }

    /// For other writes: retried within 5 min.
    pub(super) fn patient() -> Self {
        Self::new(Backoff::new(Duration::from_secs(1), Duration::from_secs(300)))
    }

    fn new(failures: Backoff) -> Self {
        let fights = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
        Self { failures, fights, fought: None, not_before: None, done: None, outage_logged: false }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }

    /// Whether nothing but a dispute with another writer holds it back.
    pub(super) fn is_disputed(&self, now: Instant) -> bool {
        !self.is_due(now) && self.failures.failures() == 0
    }

    /// When it may be attempted, if not now.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.not_before
    }

    /// Ends all waits, because the desired content has changed.
    pub(super) fn inputs_changed(&mut self) {
        self.failures.reset();
        self.not_before = None;
    }

    /// Records a successful write. `inputs` identifies what was written. A write that repeats them was made
    /// because another writer changed it (or for the `heartbeat`), and the next such write has to wait.
    ///
    /// Returns whether a logged outage is over.
    pub(super) fn succeeded(&mut self, inputs: u64, heartbeat: bool, now: Instant) -> bool {
        self.failures.reset();
        self.not_before = None;
        let again = self.done.replace(inputs) == Some(inputs);
        if again && !heartbeat {
            let last = self.fought.replace(now);
            if last.is_none_or(|last| now.saturating_duration_since(last) > DISPUTE_OVER_AFTER) {
                self.fights.reset();
            }
            self.not_before = Some(now + self.fights.next_delay());
        }
        std::mem::take(&mut self.outage_logged)
    }

    /// Records a failed write. Returns whether it is the first of an outage, to be logged.
    pub(super) fn failed(&mut self, refusal: Refusal, now: Instant) -> bool {
        let first = self.failures.failures() == 0;
        let asked = match refusal {
            Refusal::NotAllowed | Refusal::Denied | Refusal::Invalid => {
                (self.failures.longest() > REFUSAL_RETRY_DELAY).then_some(REFUSAL_RETRY_DELAY)
            }
            other => other.retry_after(),
        };
        let wait = self.failures.after_failure(asked);
        // A conflict is normal: the first is retried immediately with a fresh copy of the object.
        let at_once = first && refusal == Refusal::Conflict;
        self.not_before = (!at_once).then_some(now + wait);
        refusal != Refusal::Conflict && !std::mem::replace(&mut self.outage_logged, true)
    }
}
