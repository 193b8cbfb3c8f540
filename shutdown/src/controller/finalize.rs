//! What stays of a run when it is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};
use winddown_shared::{Inhibitor, PodKiller, WallTime, error_chain};

use super::ShutdownController;
use crate::run_context::RunContext;
use crate::{
    Budget, Outcome, ReportSink, RunPhase, RunRecord, ShutdownReport, StateFile, StateTimes,
};

/// The disk gets at least this long, however late it is.
const LEAST_FOR_REPORT: Duration = Duration::from_millis(100);

/// Last statuses are told for at most this long, however long the node would wait: logind holds up the
/// whole machine meanwhile.
const LONGEST_TELLING: Duration = Duration::from_secs(10);

/// How long the end of somebody else's run may take to put down; nothing waits for it.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// After a report could not be kept, and at most between two attempts.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

/// The start of the run on its way into the state file.
pub(super) type Noted = JoinHandle<StateTimes>;

impl<K: PodKiller, I: Inhibitor> ShutdownController<K, I> {
    /// Writes the start into the state file, beside the run: no pod waits for the disk.
    pub(super) fn note_start(&self, at: WallTime) -> Noted {
        let file = self.parts.state_file.clone();
        let times = StateTimes { start: Some(at), end: None };
        spawn_blocking(move || {
            store_times(file.as_ref(), times);
            times
        })
    }

    /// Until when the disk is waited for.
    pub(super) fn report_deadline(&self, started: Instant, budget: Budget) -> Instant {
        let now = Instant::now();
        let until = (started + budget.report_until()).min(now + budget.reserve);
        until.max(now + LEAST_FOR_REPORT)
    }

    /// Until when last statuses are told, the report's time included: pods that ended early leave
    /// what is not theirs any more to that. Where it is not known when the node goes, the reserve.
    pub(super) fn status_flush_deadline(&self, context: &RunContext, started: Instant) -> Instant {
        let reserved = self.report_deadline(started, context.budget);
        let Some(gone) = context.node_is_gone() else { return reserved };
        let last = started + gone.saturating_sub(context.budget.reserve / 8);
        reserved.max(last.min(Instant::now() + LONGEST_TELLING))
    }

    /// Until when the disk is waited for after last statuses were told, `at_most` at the latest.
    pub(super) fn report_deadline_after_flush(&self, at_most: Instant, budget: Budget) -> Instant {
        let now = Instant::now();
        at_most.min(now + budget.reserve).max(now + LEAST_FOR_REPORT)
    }

    /// Keeps the report, for as long as there is time, and says whether it is kept. That of a run that
    /// was called off is tried again for as long as the agent lives.
    pub(super) async fn keep(&self, report: ShutdownReport, noted: Noted, until: Instant) -> bool {
        let (sink, file) = (Arc::clone(&self.parts.reports), self.parts.state_file.clone());
        let ended_at = report.ended_at;
        let keep = spawn_blocking(move || {
            let Err(error) = sink.keep(&report) else { return true };
            let error = error_chain(&error);
            if report.outcome == Outcome::Cancelled {
                tracing::warn!(error, "the shutdown report is not kept; trying again");
                tokio::spawn(retry_store(sink, report));
            } else {
                tracing::error!(log_kind = "reportLost", error, "the shutdown report is lost");
            }
            false
        });
        let note = async move {
            // One after the other, or a slow first write would overtake the second.
            let times = noted.await.unwrap_or_default();
            let times = StateTimes { end: Some(ended_at), ..times };
            // What it has to say is logged there.
            let _ = spawn_blocking(move || store_times(file.as_ref(), times)).await;
        };
        let lost = match timeout_at(until, async { tokio::join!(keep, note).0 }).await {
            Ok(Ok(kept)) => return kept,
            Ok(Err(_)) => "writing the shutdown report panicked; the report is lost",
            Err(_) => "the disk does not answer; the node is let go without a report",
        };
        tracing::error!(log_kind = "reportLost", "{lost}");
        false
    }

    /// Reports a run that was called off while no agent was there.
    pub(super) async fn report_called_off(&self, record: &RunRecord) {
        let why = "the run was called off while no agent was there to see when";
        self.report_again_as_called_off(record.report.clone(), why).await;
    }

    /// Replaces the report of a run that had ended before it was called off: the node stays up, so it
    /// does not say how the node went down.
    pub(super) async fn report_again_as_called_off(&self, mut report: ShutdownReport, why: &str) {
        report.outcome = Outcome::Cancelled;
        report.warnings.push(why.into());
        let noted = self.note_start(report.started_at);
        self.keep(report, noted, Instant::now() + DISK_TIMEOUT).await;
    }

    /// Puts down that the run of `record` was called off: the next agent of this boot has nothing
    /// to go on with.
    pub(super) async fn close(&self, mut record: RunRecord) {
        record.phase = RunPhase::Cancelled;
        record.sequence += 1;
        let places = self.parts.records.clone();
        let write = spawn_blocking(move || {
            for place in places {
                match place.write(&record) {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(error = error_chain(&error), "the record is not closed");
                    }
                }
            }
        });
        if timeout_at(Instant::now() + DISK_TIMEOUT, write).await.is_err() {
            tracing::warn!("the disk does not answer; the record is not closed");
        }
    }
}

/// A disk that was full when the run was called off may have room again.
async fn retry_store(sink: Arc<dyn ReportSink>, report: ShutdownReport) {
    let (report, mut wait) = (Arc::new(report), RETRY);
    loop {
        sleep(wait).await;
        wait = (wait * 2).min(RETRY_AT_MOST);
        let (sink, report) = (Arc::clone(&sink), Arc::clone(&report));
        if let Ok(Ok(())) = spawn_blocking(move || sink.keep(&report)).await {
            tracing::info!("the shutdown report is kept now");
            return;
        }
    }
}

fn store_times(file: Option<&StateFile>, times: StateTimes) {
    let Some(file) = file else { return };
    if let Err(error) = file.store(times) {
        tracing::warn!(error = error_chain(&error), "the shutdown state file is not up to date");
    }
}
