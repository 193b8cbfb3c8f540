//! How long a container that exited waits before it is started again.

use std::time::Duration;

/// The backoff of crashing containers. The defaults are the kubelet's, where they are not configurable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashBackoff {
    /// The wait before the second restart; the first is immediate.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// A run this long resets the backoff.
    pub reset_after: Duration,
}

impl Default for CrashBackoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(300),
            reset_after: Duration::from_secs(600),
        }
    }
}

impl CrashBackoff {
    /// The wait after a run that took `ran`; `due` is the wait that follows a short run.
    pub fn after(&self, due: Duration, ran: Duration) -> Duration {
        if ran >= self.reset_after { Duration::ZERO } else { due.min(self.max) }
    }

    /// The wait that follows a run which was itself started after `waited`.
    pub fn next(&self, waited: Duration) -> Duration {
        if waited.is_zero() {
            self.initial.min(self.max)
        } else {
            waited.saturating_mul(2).min(self.max)
        }
    }
}
