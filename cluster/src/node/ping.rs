//! Checks whether the container runtime answers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::GoDuration;

use super::ticker::Ticker;

/// A periodic check of whether pods can run.
pub trait Ping: Send + Sync + 'static {
    /// Answers soon. The error is for people: it becomes the message of the node's Ready condition.
    ///
    /// There is one call at a time. A call that exceeds the timeout counts as failed but is not
    /// dropped: its late answer counts again.
    fn ping(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Always healthy: for nodes whose readiness is set only through the handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPing;

/// How the answer to a ping is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingTimes {
    /// The timeout of an answer. It cannot be switched off: a runtime that hangs is unhealthy.
    pub timeout: Duration,
    /// The maximum age of the last good answer; at least three intervals.
    pub stale_after: Duration,
}

/// What the pings have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PingAnswer {
    /// The first answer is pending, and not late yet.
    Waiting,
    Given {
        /// Why pods cannot run; `None` if they can.
        problem: Option<Arc<str>>,
        /// When it was given, or should have been.
        at: Instant,
    },
}

/// Pings with every tick, forever. Notifies receivers of `answers` only of changes.
pub(super) async fn watch_over<P: Ping>(
    ping: &P,
    times: PingTimes,
    mut ticker: Ticker,
    answers: &watch::Sender<PingAnswer>,
) {
    loop {
        let asked = Instant::now();
        let mut call = pin!(ping.ping());
        let answer = tokio::select! {
            answer = &mut call => Some(answer),
            () = sleep_until(asked + times.timeout) => None,
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let late = format!("no answer within {}", humane(times.timeout));
                record(answers, Err(late), asked + times.timeout);
                call.await
            }
        };
        record(answers, answer, Instant::now());
        ticker.next().await;
    }
}

fn record(answers: &watch::Sender<PingAnswer>, answer: Result<(), String>, now: Instant) {
    answers.send_if_modified(|known| {
        let new = match (&known, &answer) {
            (PingAnswer::Waiting, _) => true,
            (PingAnswer::Given { problem, .. }, Ok(())) => problem.is_some(),
            (PingAnswer::Given { problem, .. }, Err(error)) => {
                problem.as_deref() != Some(error.as_str())
            }
        };
        if new {
            *known = PingAnswer::Given { problem: answer.err().map(Into::into), at: now };
        } else if let PingAnswer::Given { at, .. } = known {
            *at = now;
        }
        new
    });
}

fn humane(duration: Duration) -> String {
    GoDuration::try_from(duration).map_or_else(|_| format!("{duration:?}"), |text| text.to_string())
}

// === impl PingTimes ===

impl Default for PingTimes {
    /// A timeout of ten seconds, and a maximum age of three times that.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), stale_after: Duration::from_secs(30) }
    }
}

// === impl PingAnswer ===

impl PingAnswer {
    /// Whether nothing is known yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    /// Whether the answer was good, but is too old.
    pub(super) fn is_stale(&self, now: Instant, times: PingTimes) -> bool {
        match self {
            Self::Given { problem: None, at } => {
                now.saturating_duration_since(*at) > times.stale_after
            }
            _ => false,
        }
    }

    /// Why pods cannot run, according to the pings; `None` if the last answer is good and recent.
    pub(super) fn problem(&self, now: Instant, times: PingTimes) -> Option<Arc<str>> {
        let Self::Given { problem, .. } = self else {
            return Some("no answer yet from the pods' runtime".into());
        };
        if self.is_stale(now, times) {
            return Some(format!("no answer for more than {}", humane(times.stale_after)).into());
        }
        problem.clone()
    }
}

// === impl NoPing ===

impl Ping for NoPing {
    async fn ping(&self) -> Result<(), String> {
        Ok(())
    }
}

impl<P: Ping> Ping for Arc<P> {
    async fn ping(&self) -> Result<(), String> {
        (**self).ping().await
    }
}
