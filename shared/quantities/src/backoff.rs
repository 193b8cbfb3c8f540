//! Delays between retries.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How delays double: from the first to the longest, each drawn between two percentages of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    first: Duration,
    longest: Duration,
    jitter: [u32; 2],
}

/// Doubles from `first` to `longest`, with jitter so that many nodes do not act at once.
///
/// Each delay is between half of the step and the whole of it. It never gives up;
/// [`reset`](Self::reset) starts over, after a success or when the operation has changed.
#[derive(Clone, Debug)]
pub struct Backoff {
    delays: Delays,
    failures: u32,
}

/// A delay is as long as the step.
pub(crate) const EXACT: [u32; 2] = [100, 100];
/// A delay is between half of the step and the whole of it.
pub(crate) const SOONER: [u32; 2] = [50, 100];
/// A delay is between the step and half as much again, after the longest step too.
pub(crate) const LATER: [u32; 2] = [100, 150];

/// A random fraction in `0.0..1.0`.
pub fn fraction() -> f64 {
    // The keys of the standard library's hash maps are random per process and differ per `RandomState`.
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = bits as f64 / (1_u64 << 53) as f64;
    fraction
}

/// Returns `first`, doubled `times`, but at most `longest`: a delay without jitter, where each is promised to people or
/// belongs to one object of this node.
pub fn doubled(first: Duration, longest: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(31)).min(longest)
}

// === impl Delays ===

impl Delays {
    /// Delays in milliseconds, and the percentages between which each is drawn.
    pub(crate) const fn of_millis(first: u64, longest: u64, jitter: [u32; 2]) -> Self {
        Self {
            first: Duration::from_millis(first),
            longest: Duration::from_millis(longest),
            jitter,
        }
    }

    /// The delay after `failures` others. `fraction`, from 0 to 1, is the jitter.
    pub fn delay(self, failures: u32, fraction: f64) -> Duration {
        self.within(Duration::MAX, failures, fraction)
    }

    /// The same, but none is longer than `most`.
    pub(crate) fn within(self, most: Duration, failures: u32, fraction: f64) -> Duration {
        let [from, to] = self.jitter.map(f64::from);
        let step = doubled(self.first, self.longest, failures).min(most);
        step.mul_f64((from + (to - from) * fraction) / 100.0).min(most)
    }

    /// These delays, one after the other.
    pub const fn backoff(self) -> Backoff {
        Backoff { delays: self, failures: 0 }
    }
}

// === impl Backoff ===

impl Backoff {
    /// For background work: 5 ms to 5 min.
    pub const PATIENT: Self = Self::new(Duration::from_millis(5), Duration::from_secs(300));

    /// For what people or a shutdown wait for: 5 ms to 10 s.
    pub const EAGER: Self = Self::new(Duration::from_millis(5), Duration::from_secs(10));

    /// Creates a backoff from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Delays { first, longest, jitter: SOONER }.backoff()
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.step(fraction())
    }

    /// Like [`next_delay`](Self::next_delay), but at least what the server asked for.
    pub fn after_failure(&mut self, asked: Option<Duration>) -> Duration {
        let wait = self.next_delay();
        asked.map_or(wait, |asked| wait.max(asked))
    }

    /// The number of failures since the last [`reset`](Self::reset).
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The longest delay, unless the server asks for more.
    pub fn longest(&self) -> Duration {
        self.delays.longest
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn step(&mut self, fraction: f64) -> Duration {
        let delay = self.delays.delay(self.failures, fraction);
        self.failures = self.failures.saturating_add(1);
        delay
    }
}
