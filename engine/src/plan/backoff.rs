//! How long a container that ended waits before it is started again.

use std::time::Duration;

/// The back-off of crashing containers. The kubelet's, and not configurable there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the second restart; the first is at once.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// A run this long clears the back-off.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(300),
            reset_after: Duration::from_secs(600),
        }
    }
}

impl Backoff {
    /// The wait after a run of `ran` that had been started with `due` as the wait to follow it.
    pub fn after(&self, due: Duration, ran: Duration) -> Duration {
        if ran >= self.reset_after { Duration::ZERO } else { due.min(self.max) }
    }

    /// The wait to follow a run that was itself started after `waited`.
    pub fn next(&self, waited: Duration) -> Duration {
        if waited.is_zero() {
            self.initial.min(self.max)
        } else {
            waited.saturating_mul(2).min(self.max)
        }
    }
}
