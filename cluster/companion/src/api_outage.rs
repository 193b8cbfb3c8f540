//! Tracks since when requests to the API server have failed.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The length of outage that stops wait out.
const BRIDGED_OUTAGE: Duration = Duration::from_secs(10);
/// The minimum wait: the first request may show that the outage is over.
const FIRST_TRY: Duration = Duration::from_secs(1);

/// The time since which requests and the watch have failed, if they do.
#[derive(Debug)]
pub(super) struct ApiOutage(watch::Sender<Option<Instant>>);

impl ApiOutage {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    pub(super) fn worked(&self) {
        self.0.send_if_modified(|since| since.take().is_some());
    }

    /// Records that a request that was sent at that time has failed.
    pub(super) fn failed(&self, sent: Instant) {
        self.0.send_if_modified(|since| {
            let first = since.is_none();
            since.get_or_insert(sent);
            first
        });
    }

    pub(super) fn fails(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Resolves when requests do not fail. Cancel-safe.
    pub(super) async fn recovered(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(Option::is_none).await;
    }

    /// Resolves when the server has been away for so long that a stop must not wait for it any longer. The stop
    /// began at `begun`, with a grace period of `grace`. Cancel-safe.
    pub(super) async fn given_up(&self, begun: Instant, grace: Duration) {
        let mut since = self.0.subscribe();
        loop {
            let failing = *since.borrow_and_update();
            match failing {
                None => {
                    // The sender lives as long as `self`.
                    let _ = since.changed().await;
                }
                Some(failing) => tokio::select! {
                    () = sleep_until(patience_ends(failing, begun, grace)) => return,
                    Ok(()) = since.changed() => {}
                },
            }
        }
    }
}

/// The part of a grace period that may be spent waiting for an API server that does not answer.
pub(super) fn patience(grace: Duration) -> Duration {
    (grace / 3).clamp(FIRST_TRY, BRIDGED_OUTAGE)
}

fn patience_ends(failing: Instant, begun: Instant, grace: Duration) -> Instant {
    (failing + BRIDGED_OUTAGE).min(begun + patience(grace)).max(failing.max(begun) + FIRST_TRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_ten_seconds_a_third_of_the_grace_and_never_less_than_one_try() {
        let now = Instant::now() + Duration::from_secs(1000);
        let secs = Duration::from_secs;
        // How long before the stop the outage began; the grace period; when the patience ends.
        for (failing, grace, wanted) in [
            (secs(0), secs(60), secs(10)),
            (secs(4), secs(60), secs(6)),
            (secs(500), secs(60), secs(1)),
            (secs(0), secs(9), secs(3)),
            (secs(0), secs(1), secs(1)),
        ] {
            assert_eq!(patience_ends(now - failing, now, grace) - now, wanted, "{failing:?}");
        }
    }
}
