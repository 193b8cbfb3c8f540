//! How long to wait before something is tried again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Doubles from `first` to `longest`, and spreads what many nodes would otherwise do at once.
///
/// Each wait is between half of the step and the whole of it. It never gives up; [`reset`](Self::reset)
/// begins anew, after a success or when what is tried has changed.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

/// A fraction in `0.0..1.0`, different each time.
pub fn fraction() -> f64 {
    // The keys of the standard library's hash maps are random per process and differ per state.
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = bits as f64 / (1_u64 << 53) as f64;
    fraction
}

impl Backoff {
    /// For background work: 5 ms to 5 min.
    pub const PATIENT: Self = Self::new(Duration::from_millis(5), Duration::from_secs(300));

    /// For what people or a shutdown wait for: 5 ms to 10 s.
    pub const EAGER: Self = Self::new(Duration::from_millis(5), Duration::from_secs(10));

    /// A back-off from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts a failure: the wait before the next attempt, at least what the server asked for.
    pub fn after_failure(&mut self, asked: Option<Duration>) -> Duration {
        let wait = self.step(fraction());
        asked.map_or(wait, |asked| wait.max(asked))
    }

    /// How many failures there were since the last [`reset`](Self::reset).
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The longest wait, as far as the server does not ask for more.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn step(&mut self, fraction: f64) -> Duration {
        let doublings = self.failures.min(31);
        self.failures = self.failures.saturating_add(1);
        let whole = self.first.saturating_mul(1 << doublings).min(self.longest);
        whole.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)
    }
}
