//! The server's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tokio::time::Instant;

/// The machine's clock with a skew that a test sets. Clones share the skew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    skew_millis: Arc<AtomicI64>,
    /// When it began to follow tokio's clock, which a test can pause.
    began: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// One that starts now and follows tokio's clock from then on.
    pub(crate) fn of_tokio() -> Self {
        let clock = Self::default();
        Self { began: Some((clock.now(), Instant::now())), ..clock }
    }

    #[allow(clippy::disallowed_methods, reason = "this server stands for another machine")]
    pub(crate) fn now(&self) -> Timestamp {
        let skew = SignedDuration::from_millis(self.skew_millis.load(Ordering::SeqCst));
        let now = match self.began {
            Some((then, began)) => then.checked_add(began.elapsed()).unwrap_or(then),
            None => Timestamp::now(),
        };
        now.checked_add(skew).unwrap_or(now)
    }

    pub(crate) fn set_skew(&self, skew: SignedDuration) {
        let millis = i64::try_from(skew.as_millis()).unwrap_or_default();
        self.skew_millis.store(millis, Ordering::SeqCst);
    }
}

/// Determines when client certificates are valid.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A `metav1.Time`: whole seconds.
pub(crate) fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// Adds whole seconds, which may be negative; out-of-range results leave the time unchanged.
pub(crate) fn moved(at: Timestamp, by_seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(by_seconds)).unwrap_or(at)
}

/// The value of a `Date` header.
pub(crate) fn http_date(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
