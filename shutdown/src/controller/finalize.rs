//! The final steps of a run: storing the report and the state file, and closing the record.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use winddown_shared::{Event, WallTime, error_chain};

use super::ShutdownController;
use super::release::FOR_REPORT;
use crate::EndingPods;
use crate::run::outcome_of;
use crate::run_context::RunContext;
use crate::{Budget, RunRecord, RunReport, ShutdownReport, StateFile, StateTimes};

/// The shortest time that the disk gets.
const LEAST_FOR_REPORT: Duration = Duration::from_millis(100);

/// The longest time for work before the release beyond what the plan kept for it, even if the node would
/// wait longer: logind holds up the whole machine in the meantime.
const LONGEST_TELLING: Duration = Duration::from_secs(10);

/// How long to wait for the disk to store that a run was called off.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that writes the start of the run into the state file.
pub(super) type Noted = JoinHandle<StateTimes>;

impl<K: EndingPods> ShutdownController<K> {
    /// Writes the start into the state file in the background: no pod waits for the disk.
    pub(super) fn note_start(&self, at: WallTime) -> Noted {
        let file = self.parts.state_file.clone();
        let times = StateTimes { start: Some(at), end: None };
        spawn_blocking(move || {
            store_times(file.as_ref(), times);
            times
        })
    }

    /// Returns the deadline for storing the report: `at_most`, unless that leaves the disk no time.
    pub(super) fn report_deadline(&self, at_most: Instant, budget: Budget) -> Instant {
        let now = Instant::now();
        at_most.min(now + budget.reserve).max(now + LEAST_FOR_REPORT)
    }

    /// Returns the deadline for the work before the release, including the report's time. That work gets the
    /// time that pods left unused, and what the plan kept for it. If it is unknown when the node goes down, it
    /// gets the reserve.
    pub(super) fn release_deadline(
        &self,
        context: &RunContext,
        started: Instant,
        run: &RunReport,
    ) -> Instant {
        let (now, budget) = (Instant::now(), context.budget);
        let until = started + budget.report_until();
        let mut reserved = self.report_deadline(until, budget);
        let kept = run.kept_for_release(&self.parts.work);
        if !kept.is_zero() {
            reserved = reserved.max((now + kept + FOR_REPORT).min(until));
        }
        let Some(gone) = context.node_is_gone() else { return reserved };
        let last = started + gone.saturating_sub(budget.reserve / 8);
        reserved.max(last.min(now + LONGEST_TELLING))
    }

    /// Stores the report if there is time, and returns whether it is stored. If it is not, it is retried until it is
    /// stored or the agent exits.
    pub(super) async fn keep(&self, report: ShutdownReport, noted: Noted, until: Instant) -> bool {
        let file = self.parts.state_file.clone();
        let ended_at = report.finished_at;
        let stays_up = report.left_the_node_up();
        let keep = self.unstored.store(report);
        let note = async move {
            // One after the other, or a slow first write could overwrite the second.
            let times = noted.await.unwrap_or_default();
            let times = StateTimes { end: Some(ended_at), ..times };
            // `store_times` logs errors.
            let _ = spawn_blocking(move || store_times(file.as_ref(), times)).await;
        };
        // Each on its own: a state file that hangs loses no report.
        let (kept, noted) = tokio::join!(timeout_at(until, keep), timeout_at(until, note));
        if noted.is_err() {
            tracing::warn!("the disk does not respond; the shutdown state file is out of date");
        }
        let error = match kept {
            Ok(Ok(Ok(()))) => return true,
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => "the attempt panicked, which is a bug".to_owned(),
            Err(_) => "the disk does not answer".to_owned(),
        };
        if stays_up {
            tracing::warn!(error, "cannot store the shutdown report; retrying");
        } else {
            tracing::error!(
                log_kind = "reportLost",
                error,
                "the shutdown report is lost if the agent exits before the disk takes it; retrying"
            );
        }
        false
    }

    /// Tries once more to store what the disk has refused, before a release that leaves the agent `time` for it.
    pub(super) async fn keep_before_release(&self, time: Duration) {
        if self.unstored.is_empty() {
            return;
        }
        let unstored = self.unstored.clone();
        let attempt = tokio::spawn(async move { unstored.attempt().await });
        if !matches!(timeout(time, attempt).await, Ok(Ok(Ok(())))) {
            tracing::error!(log_kind = "reportLost", "the shutdown report is lost");
        }
    }

    /// Reports a run that was called off while no agent was running.
    pub(super) async fn report_called_off(&self, record: &RunRecord) {
        if record.phase.is_over() {
            let mut report = record.report.clone();
            report.outcome = outcome_of(&report.groups, report.pods_unknown);
            return self.report_stayed_up(report).await;
        }
        self.report_again(record.called_off(&self.parts.boot_clock, &self.parts.clock)).await;
    }

    /// Reports an incomplete run of which it is not known whether it was called off, and that it is over.
    pub(super) async fn report_unknown(&self, record: &RunRecord) {
        let mut report = record.until_now(&self.parts.boot_clock, &self.parts.clock);
        let why = "no agent completed the run, and whether the shutdown was cancelled is unknown";
        report.warnings.push(why.into());
        let took = report.took;
        self.report_again(report).await;
        let ended = Event::ShutdownFinished { took, left: 0, unknown: true, released: false };
        self.parts.recorder.record(&ended);
    }

    /// Replaces the report of a run that was called off after its end: what became of its pods stays true, but the report
    /// must not claim that the node went down.
    pub(super) async fn report_stayed_up(&self, mut report: ShutdownReport) {
        report.node_stayed_up = true;
        self.report_again(report).await;
    }

    async fn report_again(&self, report: ShutdownReport) {
        let noted = self.note_start(report.started_at);
        self.keep(report, noted, Instant::now() + DISK_TIMEOUT).await;
    }

    /// Persists that the run of `record` was called off, so that the next agent of this boot does
    /// not resume it.
    pub(super) async fn close(&self, record: RunRecord) {
        let record = Arc::new(record.closed());
        // Each on its own: a place that hangs keeps no other open.
        let writes = self.parts.records.iter().map(|place| {
            let (place, record) = (Arc::clone(place), Arc::clone(&record));
            spawn_blocking(move || {
                if let Err(error) = place.write(&record) {
                    tracing::warn!(error = error_chain(&error), "the record is not closed");
                }
            })
        });
        if timeout_at(Instant::now() + DISK_TIMEOUT, join_all(writes)).await.is_err() {
            tracing::warn!("the disk does not respond; the record is not closed");
        }
    }
}

fn store_times(file: Option<&StateFile>, times: StateTimes) {
    let Some(file) = file else { return };
    if let Err(error) = file.store(times) {
        tracing::warn!(error = error_chain(&error), "the shutdown state file is out of date");
    }
}
