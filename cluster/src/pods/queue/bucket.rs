//! Limits the retries per second of all pods of a queue.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket for retries.
///
/// First attempts do not pass through it: they are limited only by the workers, so a node full of
/// pods starts as fast as it accepts them
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/840>).
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// The time until one token is added.
    each: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Option<Instant>,
}

impl Bucket {
    /// Creates a full bucket of `burst` tokens, which is refilled at `per_second`.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Self { each, burst: burst.max(1), full_at: None }
    }

    /// Takes a token. Returns how long to wait until it is available.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.each;
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now + self.each * self.burst)
    }
}
