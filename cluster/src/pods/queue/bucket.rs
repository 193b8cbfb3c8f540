//! How many attempts a second are repeated, over all pods of a queue.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket for repeated attempts.
///
/// First attempts do not pass through it: what is new is limited by the workers alone, so a node full
/// of pods starts as fast as its provider takes them
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/840>).
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// The time one token takes to grow.
    each: Duration,
    burst: u32,
    /// When the bucket would have been full, counted back by what was taken.
    full_at: Option<Instant>,
}

impl Bucket {
    /// A full bucket of `burst` tokens that grow at `per_second`.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self { each, burst: burst.max(1), full_at: None }
    }

    /// Takes a token: how long to wait until it is there.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.each;
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now + self.each * self.burst)
    }
}
