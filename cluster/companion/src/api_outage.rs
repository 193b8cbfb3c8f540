//! Tracks whether the API server answers.
//!
//! While a pod waits for the API server to accept its end, the server is probed with a request that it answers from
//! memory. So a server that is slow because many pods end at once is never taken for a silent one, and one that refuses
//! connections is known to be away in a millisecond.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};
use winddown_api_client::refusal::Refusal;

use super::api::EndPods;

/// How long an API server may answer nothing at all before it counts as away.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
/// The same for one that has just answered, while more than [`MANY`] pods wait until it accepts and tells their ends, and for
/// one that this agent had no processor to hear.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long ago it may have answered.
const JUST_NOW: Duration = Duration::from_secs(2);
/// With at most this many pods to stop, any API server answers a probe in time.
const MANY: usize = 8;
/// The time between two probes; none is sent if the server has answered something else meanwhile.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum time for one request: the first answer may show that the server is back.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// The longest time that a pod's end waits for an API server that answers, but does not accept it.
const LONGEST_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of the API server while pods end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ApiVerdict {
    /// It has not been probed yet.
    #[default]
    Unknown,
    Answers,
    /// It refuses connections, or has answered nothing for [`PROBE_TIMEOUT`] or [`BUSY_TIMEOUT`].
    Away,
}

/// The time since which requests and the watch have failed, if they do, and what the probes show.
#[derive(Debug, Default)]
pub(super) struct ApiOutage {
    since: watch::Sender<Option<Instant>>,
    heard: watch::Sender<Option<Instant>>,
    verdict: watch::Sender<ApiVerdict>,
    wanted: Notify,
}

impl ApiOutage {
    /// Records that the server has answered.
    pub(super) fn worked(&self) {
        self.heard.send_replace(Some(Instant::now()));
        self.since.send_if_modified(|since| since.take().is_some());
        self.set_verdict(ApiVerdict::Answers);
    }

    /// Records that a request that was sent at that time has failed.
    pub(super) fn failed(&self, sent: Instant) {
        self.since.send_if_modified(|since| {
            let first = since.is_none();
            since.get_or_insert(sent);
            first
        });
    }

    pub(super) fn fails(&self) -> bool {
        self.since.borrow().is_some()
    }

    /// Resolves when requests do not fail. Cancel-safe.
    pub(super) async fn recovered(&self) {
        // The sender lives as long as `self`.
        let _ = self.since.subscribe().wait_for(Option::is_none).await;
    }

    /// Resolves when requests fail. Cancel-safe.
    pub(super) async fn begun(&self) {
        // The sender lives as long as `self`.
        let _ = self.since.subscribe().wait_for(Option::is_some).await;
    }

    /// Has the server probed until the receiver is dropped.
    pub(super) fn verdict(&self) -> watch::Receiver<ApiVerdict> {
        let verdict = self.verdict.subscribe();
        self.wanted.notify_one();
        verdict
    }

    /// Probes the server while there are receivers of the verdict, and at once for the first. Never returns.
    pub(super) async fn keep_probing<A: EndPods>(&self, api: &A) -> Infallible {
        loop {
            let mut since = Instant::now().checked_sub(PROBE_INTERVAL);
            while self.verdict.receiver_count() == 0 {
                self.verdict.send_replace(ApiVerdict::Unknown);
                self.wanted.notified().await;
                // What it answered before says nothing.
                since = Some(Instant::now());
            }
            if !self.has_heard_since(since) {
                self.probe(api).await;
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    async fn probe<A: EndPods>(&self, api: &A) {
        let sent = Instant::now();
        match self.answers(api).await {
            Some(true) => self.worked(),
            // Another request may have been answered meanwhile.
            None if self.has_heard_since(Some(sent)) => {}
            Some(false) | None => {
                self.failed(sent);
                self.set_verdict(ApiVerdict::Away);
            }
        }
    }

    /// Probes the server once. Returns whether it can be reached and answers, whatever it says; nothing if it is silent.
    /// Cancel-safe.
    pub(super) async fn answers<A: EndPods>(&self, api: &A) -> Option<bool> {
        let sent = Instant::now();
        let mut answer = pin!(api.probe());
        let due = sent + PROBE_TIMEOUT;
        let mut answered = timeout_at(due, &mut answer).await;
        let just_answered = self.has_heard_since(sent.checked_sub(JUST_NOW));
        let is_busy = just_answered && self.verdict.receiver_count() > MANY;
        // An agent that had no processor meanwhile may only not have read the answer yet.
        let is_late = due.elapsed() > PROBE_INTERVAL;
        if answered.is_err() && (is_busy || is_late) {
            let until = (sent + BUSY_TIMEOUT).max(Instant::now() + PROBE_INTERVAL);
            answered = timeout_at(until, answer).await;
        }
        let refusal = answered.ok()?.err().map(|refused| refused.refusal);
        Some(refusal != Some(Refusal::NoAnswer))
    }

    fn has_heard_since(&self, since: Option<Instant>) -> bool {
        since.is_some_and(|since| self.heard.borrow().is_some_and(|at| at >= since))
    }

    fn set_verdict(&self, verdict: ApiVerdict) {
        self.verdict.send_if_modified(|known| std::mem::replace(known, verdict) != verdict);
    }
}

/// The part of a grace period that may be spent waiting for an API server that answers, but does not accept the pod's
/// end.
pub(super) fn patience(grace: Duration) -> Duration {
    (grace / 3).clamp(FIRST_TRY, LONGEST_PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_a_third_of_the_grace_at_most_ten_seconds_and_never_less_than_one_try() {
        for (grace, wanted) in [(60, 10), (30, 10), (9, 3), (1, 1)] {
            let wanted = Duration::from_secs(wanted);
            assert_eq!(patience(Duration::from_secs(grace)), wanted, "{grace}");
        }
    }
}
