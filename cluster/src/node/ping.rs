//! Whether the container runtime answers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::GoDuration;

use super::ticker::Ticker;

/// Checked periodically: whether pods can run.
pub trait Ping: Send + Sync + 'static {
    /// Answers soon. The error is for people: it becomes the message of the node's Ready condition.
    ///
    /// One call is under way at a time. A call that takes longer than the timeout counts as failed,
    /// and is waited for all the same: its late answer counts again.
    fn ping(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Always healthy: for nodes whose readiness is set through the handle alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPing;

/// How the answer to a ping is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingTimes {
    /// The longest time for an answer. There is always one: a provider that hangs is unhealthy.
    pub timeout: Duration,
    /// How old the last good answer may be; three intervals are allowed in any case.
    pub stale_after: Duration,
}

/// What is known from pings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The first one is still out, and not yet late.
    Waiting,
    /// The last answer.
    Given {
        /// Why pods cannot be run.
        problem: Option<Arc<str>>,
        /// When it was given, or when it should have been.
        at: Instant,
    },
}

/// Pings with every tick, for ever. Sends only changes to `answers`.
pub(super) async fn watch_over<P: Ping>(
    ping: &P,
    times: PingTimes,
    mut ticker: Ticker,
    answers: &watch::Sender<Answer>,
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

fn record(answers: &watch::Sender<Answer>, answer: Result<(), String>, now: Instant) {
    answers.send_if_modified(|known| {
        let new = match (&known, &answer) {
            (Answer::Waiting, _) => true,
            (Answer::Given { problem, .. }, Ok(())) => problem.is_some(),
            (Answer::Given { problem, .. }, Err(error)) => {
                problem.as_deref() != Some(error.as_str())
            }
        };
        if new {
            *known = Answer::Given { problem: answer.err().map(Into::into), at: now };
        } else if let Answer::Given { at, .. } = known {
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
    /// Ten seconds, and three times that.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), stale_after: Duration::from_secs(30) }
    }
}

// === impl Answer ===

impl Answer {
    /// Nothing is known yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting)
    }

    /// It was good, and is too old.
    pub(super) fn is_stale(&self, now: Instant, times: PingTimes) -> bool {
        match self {
            Self::Given { problem: None, at } => {
                now.saturating_duration_since(*at) > times.stale_after
            }
            _ => false,
        }
    }

    /// Why pods cannot run, according to the pings. `None` for a good answer that is young enough.
    pub(super) fn problem(&self, now: Instant, times: PingTimes) -> Option<Arc<str>> {
        let Self::Given { problem, .. } = self else {
            return Some("no answer yet from what runs the pods".into());
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
