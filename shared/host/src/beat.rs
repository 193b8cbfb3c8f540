//! When periodic work is due, so that all of it is done at the same moments.
//!
//! Tokio sorts timers by the time since its runtime was built: into slots of 4096 ms, shortly before they are due into slots
//! of 64 ms, and then into slots of 1 ms. Each time it wakes a thread. A timer that is due where slots of 4096 ms begin is
//! not sorted again, and wakes a thread once.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time between two moments at which work is done together.
const BEAT_INTERVAL: Duration = Duration::from_millis(4096);
/// The same for costly work.
const SHORT_BEAT_INTERVAL: Duration = Duration::from_millis(64);

static BEGUN: OnceLock<Instant> = OnceLock::new();

/// Counts from now. Call this just before the runtime of a program is built; without it, every time is as given.
pub fn begin() {
    // A program's first runtime counts.
    let _ = BEGUN.set(Instant::now());
}

/// A period of `n` times 4.096 s, which [`due`] does not shorten.
#[must_use]
pub const fn beats(n: u32) -> Duration {
    BEAT_INTERVAL.saturating_mul(n)
}

/// The longest period up to this one that is a multiple of 4.096 s.
#[must_use]
pub fn period(period: Duration) -> Duration {
    BEGUN.get().map_or(period, |_| rounded_down(period, period, BEAT_INTERVAL))
}

/// When work is due that was done at `last` and is done at least every `period`: at the last moment within that time at
/// which a thread is woken once.
#[must_use]
pub fn due(last: Instant, period: Duration) -> Instant {
    rounded(last, period, BEAT_INTERVAL)
}

/// Waits until work is due that was done just now. Cancel-safe.
pub async fn sleep(period: Duration) {
    sleep_until(due(Instant::now(), period)).await;
}

/// Like [`due`], for work that costs more than to be woken twice: at most 64 ms before the period is over.
#[must_use]
pub fn due_costly(last: Instant, period: Duration) -> Instant {
    rounded(last, period, SHORT_BEAT_INTERVAL)
}

fn rounded(last: Instant, period: Duration, beat: Duration) -> Instant {
    let Some(begun) = BEGUN.get() else { return last + period };
    *begun + rounded_down(last.saturating_duration_since(*begun) + period, period, beat)
}

/// Leaves a period as it is that is shorter than `beat`.
fn rounded_down(at: Duration, period: Duration, beat: Duration) -> Duration {
    let over = if period < beat { 0 } else { at.as_nanos() % beat.as_nanos() };
    at.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn work_is_due_within_its_period_and_where_slots_begin() {
        let table = [
            // period, done at, due at
            (10_000, 0, 8192),
            (10_000, 8193, 16_384),
            (20_000, 8193, 24_576),
            (5200, 4097, 8192),
            (4096, 4097, 8192),
            (1000, 4097, 5097),
        ];
        for (period, done, due) in table {
            let found = rounded_down(ms(done + period), ms(period), BEAT_INTERVAL);
            assert_eq!(found, ms(due), "every {period} ms, done after {done} ms");
            assert!(found > ms(done) && found <= ms(done + period));
            let costly = rounded_down(ms(done + period), ms(period), SHORT_BEAT_INTERVAL);
            assert!(costly > ms(done + period - 64) && costly <= ms(done + period));
        }
    }

    /// How often a runtime's thread is woken until then.
    async fn wakes(then: Instant) -> u64 {
        let metrics = tokio::runtime::Handle::current().metrics();
        let before = metrics.worker_park_count(0);
        tokio::time::sleep_until(then).await;
        metrics.worker_park_count(0) - before
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_sorted_less_often_that_is_due_where_a_slot_begins() {
        let begun = Instant::now();
        let aligned = [wakes(begun + beats(1)).await, wakes(begun + beats(3)).await];
        let other = wakes(begun + beats(5) + ms(1807)).await;
        assert!(aligned.iter().all(|wakes| *wakes + 2 <= other), "{aligned:?}, {other}");
    }
}
