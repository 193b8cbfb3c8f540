//! The grace period of a stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::KillReason;
use crate::base::lock::Mutex;

/// Stands for "never" where an instant is needed: 30 years, which any clock can add.
pub(crate) const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The grace period of a stop, which can only shrink while the stop is in flight, the first reason for the stop, and
/// whether the node waits for its end.
///
/// Holds the instant at which SIGKILL is due. A stop waits on both the containers and
/// [`expired`](Self::expired). Small: there is one per terminating pod.
#[derive(Clone, Debug)]
pub struct Grace {
    shared: Arc<GraceShared>,
    reason: Option<KillReason>,
    /// SIGKILL is not due before.
    floor: Option<Instant>,
    /// The deadline that [`changed`](Self::changed) compares with.
    seen: Instant,
}

/// The pod worker's half of a [`Grace`].
#[derive(Debug)]
pub struct GraceSender(Arc<GraceShared>);

#[derive(Debug)]
struct GraceShared {
    kill_at: Mutex<Instant>,
    node_waits: AtomicBool,
    /// Notified of every change.
    changed: Notify,
}

// === impl Grace ===

impl Grace {
    /// The shortest grace period that a pod gets from its first SIGTERM: zero would mean SIGKILL without SIGTERM.
    pub const SHORTEST: Duration = Duration::from_secs(1);

    /// The grace period of a pod that sets none: the API server's default.
    pub const DEFAULT: Duration = Duration::from_secs(30);

    /// What is left of a grace period of this length for the stop signal when hooks may use all of it: a quarter, 2 s at most.
    pub fn signal_time(length: Duration) -> Duration {
        (length / 4).min(Duration::from_secs(2))
    }

    /// Creates a grace period that ends at `kill_at`, with the sender that can shorten it.
    pub fn until(kill_at: Instant) -> (GraceSender, Grace) {
        let shared = Arc::new(GraceShared {
            kill_at: Mutex::new(kill_at),
            node_waits: AtomicBool::new(false),
            changed: Notify::new(),
        });
        let sender = GraceSender(Arc::clone(&shared));
        (sender, Grace { shared, reason: None, floor: None, seen: kill_at })
    }

    /// Creates a grace period of `length` from now that will not be shortened.
    pub fn fixed(length: Duration) -> Grace {
        Self::until(instant_after(Instant::now(), length)).1
    }

    /// Sets the reason for the stop.
    #[must_use]
    pub fn with_reason(self, reason: impl Into<Option<KillReason>>) -> Grace {
        let reason = reason.into();
        if reason.is_some_and(KillReason::node_waits) {
            self.shared.node_waits.store(true, Ordering::SeqCst);
        }
        Grace { reason, ..self }
    }

    /// For a container that has not been sent its stop signal yet: it has `length` from now, even if the end was
    /// promised sooner, to others or by an agent that was gone before it had sent the signal.
    #[must_use]
    pub fn at_least(self, length: Duration) -> Grace {
        let floor = Some(instant_after(Instant::now(), length)).max(self.floor);
        let grace = Grace { floor, ..self };
        // A later end is not a shortening.
        Grace { seen: grace.kill_at(), ..grace }
    }

    /// The reason for the stop; `None` if the pod completed by itself, or a container is to be restarted.
    pub fn reason(&self) -> Option<KillReason> {
        self.reason
    }

    /// Whether the node waits for the end of the stop, for its reason or for one that came since.
    pub fn node_waits(&self) -> bool {
        self.shared.node_waits.load(Ordering::SeqCst)
    }

    /// Resolves when the node waits for the end of the stop. Cancel-safe.
    pub async fn waited_for(&self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.node_waits() {
                return;
            }
            changed.await;
        }
    }

    /// When SIGKILL is due.
    pub fn kill_at(&self) -> Instant {
        let end = *self.shared.kill_at.lock();
        self.floor.map_or(end, |floor| floor.max(end))
    }

    /// The rest of the grace period; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.kill_at().saturating_duration_since(Instant::now())
    }

    /// Resolves when SIGKILL is due, and follows every shortening. Cancel-safe.
    pub async fn expired(&mut self) {
        loop {
            let end = self.kill_at();
            self.seen = end;
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end) => return,
                () = self.changed() => {}
            }
        }
    }

    /// Resolves when the grace period has been shortened since this handle last saw it (when it was
    /// created, or last returned from here or from [`expired`](Self::expired)). Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // From here on no shortening is missed, even one between the check and the wait.
            changed.as_mut().enable();
            let end = self.kill_at();
            if end != self.seen {
                self.seen = end;
                return;
            }
            changed.await;
        }
    }
}

// === impl GraceSender ===

impl GraceSender {
    /// Moves the end to `kill_at` if that is earlier.
    pub fn shorten_to(&self, kill_at: Instant) {
        let mut end = self.0.kill_at.lock();
        if kill_at < *end {
            *end = kill_at;
            drop(end);
            self.0.changed.notify_waiters();
        }
    }

    /// Says that the node waits for the end of the stop from now on.
    pub fn node_waits(&self) {
        self.0.node_waits.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// `at` plus `length`, capped at 30 years: a pod may specify more seconds than the clock can represent.
#[must_use]
pub fn instant_after(at: Instant, length: Duration) -> Instant {
    at + length.min(FAR_FUTURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_at_its_end() {
        let begun = Instant::now();
        Grace::fixed(secs(5)).expired().await;
        assert_eq!(begun.elapsed(), secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn every_handle_follows_a_shortening_and_none_follows_a_lengthening() {
        let begun = Instant::now();
        let (sender, grace) = Grace::until(begun + secs(100));
        let waits: Vec<_> = (0..3)
            .map(|_| {
                let mut grace = grace.clone();
                tokio::spawn(async move { grace.expired().await })
            })
            .collect();
        tokio::time::sleep(secs(10)).await;
        sender.shorten_to(begun + secs(200));
        sender.shorten_to(begun + secs(20));
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(begun.elapsed(), secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shortening_before_the_wait_is_seen() {
        let (sender, mut grace) = Grace::until(Instant::now() + secs(100));
        sender.shorten_to(Instant::now() + secs(1));
        grace.changed().await;
        assert_eq!(grace.remaining(), secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_grace_whose_sender_is_gone_still_ends() {
        let (sender, mut grace) = Grace::until(Instant::now() + secs(3));
        drop(sender);
        let begun = Instant::now();
        grace.expired().await;
        assert_eq!(begun.elapsed(), secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_grace_does_not_overflow() {
        assert!(Grace::fixed(Duration::MAX).remaining() > secs(1_000_000));
    }
}
