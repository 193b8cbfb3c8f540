//! Delays before a static pod that this node cannot run now is tried again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::doubled;

/// Minimum delay after the first rejection; it doubles with every further one.
const FIRST_DELAY: Duration = Duration::from_secs(10);

/// Time without a rejection after which a pod's delay starts from the beginning.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// The number of names from which on expired ones are pruned.
const PRUNE_FROM: usize = 64;

/// Delays of static pods that the node terminated or refused because it ran short of something: 10 s, doubling each
/// time up to five minutes. After ten minutes without a rejection, a pod starts from the beginning.
///
/// Keyed by name and namespace: a pod that comes back may have another UID.
#[derive(Debug, Default)]
pub struct ReadmissionBackoff {
    past: HashMap<Arc<str>, Past>,
    /// The number of names at which expired ones are pruned next.
    prune_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    count: u32,
    last: Instant,
}

impl ReadmissionBackoff {
    /// The longest delay before a pod is tried again.
    pub const MAX_DELAY: Duration = Duration::from_secs(5 * 60);

    /// Returns the minimum delay for a pod that is rejected now. `full_name` is
    /// [`Pod::full_name`](crate::Pod::full_name).
    pub fn next_delay(&mut self, full_name: &Arc<str>, now: Instant) -> Duration {
        self.forget_old(now);
        let past = self.past.entry(full_name.clone()).or_insert(Past { count: 0, last: now });
        if now.saturating_duration_since(past.last) >= FORGIVEN_AFTER {
            past.count = 0;
        }
        let wait = doubled(FIRST_DELAY, Self::MAX_DELAY, past.count);
        *past = Past { count: past.count.saturating_add(1), last: now };
        wait
    }

    /// Removes expired entries. Runs only now and then, so that the amortized cost per call is small.
    fn forget_old(&mut self, now: Instant) {
        if self.past.len() < self.prune_at.max(PRUNE_FROM) {
            return;
        }
        let is_recent = |past: &mut Past| {
            now.saturating_duration_since(past.last) < FORGIVEN_AFTER + Self::MAX_DELAY
        };
        self.past.retain(|_, past| is_recent(past));
        self.prune_at = self.past.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_sent_away_again_and_again_stays_away_longer_up_to_five_minutes() {
        let mut now = Instant::now();
        let (mut delays, name) = (ReadmissionBackoff::default(), Arc::from("web_default"));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = delays.next_delay(&name, now);
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(delays.next_delay(&Arc::from("other_default"), now), FIRST_DELAY);
        assert_eq!(
            delays.next_delay(&name, now + FORGIVEN_AFTER),
            FIRST_DELAY,
            "long ago is forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_do_not_come_again_are_not_kept() {
        let mut delays = ReadmissionBackoff::default();
        for i in 0..10_000_u32 {
            let now = Instant::now() + Duration::from_secs(u64::from(i) * 60);
            delays.next_delay(&format!("web-{i}_default").into(), now);
        }
        assert!(delays.past.len() <= PRUNE_FROM, "{}", delays.past.len());
    }
}
