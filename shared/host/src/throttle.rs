//! Bounds how often strangers can make the agent compute.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Lets work begin in the order in which it comes, each some time after the one before.
///
/// The agent has its turn at a processor before other programs. What a stranger requests must not take that turn from them.
#[derive(Debug)]
pub struct Throttle {
    pace: Duration,
    /// When the next work may begin. Held by the first of those who wait: the lock is their queue.
    next: Mutex<Instant>,
}

impl Throttle {
    /// Lets work begin at most every `pace`.
    pub fn new(pace: Duration) -> Self {
        Self { pace, next: Mutex::new(Instant::now()) }
    }

    /// Waits until the work may begin. Cancel-safe: a turn that is given up is free for the next.
    pub async fn turn(&self) {
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        *next = Instant::now() + self.pace;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn much_work_at_once_begins_at_the_pace_and_a_turn_that_is_given_up_delays_nobody() {
        let throttle = Throttle::new(Duration::from_millis(5));
        let begun = Instant::now();
        throttle.turn().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        join_all((0..100).map(|_| throttle.turn())).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        drop(tokio::time::timeout(Duration::from_millis(1), throttle.turn()).await);
        throttle.turn().await;
        assert_eq!(begun.elapsed(), Duration::from_millis(505));
    }
}
