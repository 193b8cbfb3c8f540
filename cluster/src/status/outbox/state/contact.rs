//! Whether the API server answers.

use tokio::time::Instant;

use super::super::{OutboxStats, SpoolStats};
use super::{OutboxState, Outcome, SendFault, SendReason};

impl OutboxState {
    pub(in super::super) fn stats(&self) -> OutboxStats {
        OutboxStats {
            unacknowledged: self.entries.values().filter(|entry| !entry.is_delivered()).count(),
            waiting: self.ready.len() + self.to_keep.len() + self.keeping,
            backing_off: self.later.len(),
            in_flight: self.in_flight,
            sent: self.sent,
            reasserted: self.reasserted,
            failures: self.failures,
            silent_since: self.silent_since,
            spool: SpoolStats::default(),
        }
    }

    /// Logs when the API server stops answering and when it answers again. Statuses that waited for
    /// that are retried immediately.
    pub(super) fn note_contact(&mut self, outcome: &Outcome, now: Instant) {
        if let Err(SendFault::Later { after: None, error }) = outcome {
            if self.silent_since.is_none() {
                self.silent_since = Some(now);
                // The owner of the connection logs it.
                tracing::debug!(error, "the API server accepts no statuses; they wait here");
            }
            return;
        }
        if let Some(since) = self.silent_since.take() {
            tracing::debug!(
                after = ?now.duration_since(since),
                pods = self.entries.values().filter(|entry| !entry.is_delivered()).count(),
                "the API server accepts statuses again"
            );
            self.try_silent(now);
        }
    }

    /// Retries statuses that wait because the API server did not answer.
    pub(in super::super) fn try_silent(&mut self, now: Instant) {
        self.try_again(|why| why == SendReason::Silence, now);
    }
}
