//! One check shared by all callers that ask at about the same time.

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::stop::MOUNT_CHECK_INTERVAL;

/// Runs checks on demand, one at a time, and shares each with all callers that asked before it began. The next one
/// waits as long as the last one took (up to 50 ms), so that many pods do not occupy a CPU or the kernel's mount lock.
#[derive(Debug)]
pub struct SharedLook<T>(Mutex<Option<Newest<T>>>);

#[derive(Debug)]
struct Newest<T> {
    begun: Instant,
    ended: Instant,
    found: T,
}

// === impl SharedLook ===

impl<T> Default for SharedLook<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> SharedLook<T> {
    /// The result of a check that begins now or later. Cancel-safe.
    pub async fn look(&self, look: impl AsyncFnOnce() -> T) -> T {
        let asked = Instant::now();
        let mut newest = self.0.lock().await;
        if let Some(newest) = &*newest {
            if newest.begun >= asked {
                return newest.found.clone();
            }
            let took = newest.ended - newest.begun;
            sleep_until(newest.ended + took.min(MOUNT_CHECK_INTERVAL)).await;
        }
        let begun = Instant::now();
        let found = look().await;
        *newest = Some(Newest { begun, ended: Instant::now(), found: found.clone() });
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_that_ask_at_once_cost_two_looks_and_none_is_told_what_was_before() {
        let (shared, looks) = (SharedLook::default(), Cell::new(0));
        let begun = Instant::now();
        let ms = Duration::from_millis;
        let ask = async |after| {
            sleep(after).await;
            let asked = begun.elapsed();
            let seen = shared.look(async || {
                looks.set(looks.get() + 1);
                let seen = begun.elapsed();
                sleep(ms(5)).await;
                seen
            });
            assert!(seen.await >= asked);
        };
        join_all((0..100).map(|n| ask(ms(u64::from(n > 0))))).await;
        assert_eq!((looks.get(), begun.elapsed()), (2, ms(15)), "the second waits as long again");
    }
}
