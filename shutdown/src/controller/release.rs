//! The work of plug-ins before the shutdown is released.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, timeout_at};
use winddown_shared::{LateRemark, PodRef, ShutdownPoint, ShutdownWork, WorkContext, WorkError};

use super::ShutdownController;
use super::signals::ShutdownSignals;
use crate::EndingPods;
use crate::journal::Journal;
use crate::report::WorkEnd;
use crate::{RunReport, WorkOutcome, WorkReport};

/// The time that is kept for the report.
pub(super) const FOR_REPORT: Duration = Duration::from_millis(300);

impl<K: EndingPods> ShutdownController<K> {
    /// Does the work before the release, within the time until `until`, some of which is kept for the report.
    /// Returns the pods whose final status was not sent. Returns early if the shutdown is called off.
    pub(super) async fn work_before_release(
        &self,
        run: &mut RunReport,
        journal: &mut Journal,
        started: Instant,
        until: Instant,
        signals: &ShutdownSignals,
    ) -> Vec<PodRef> {
        let work = self.release_work(run, started);
        if work.is_empty() {
            return Vec::new();
        }
        let (begun, clean) = (Instant::now(), run.is_clean());
        let for_report = FOR_REPORT.min(until.saturating_duration_since(begun) / 4);
        let until = until - for_report;
        let mut going = FuturesUnordered::new();
        for (work, remark) in &work {
            let Some(report) = run.work.iter_mut().find(|report| report.is_of(work)) else {
                continue;
            };
            let bound = work.bound.map(|bound| begun + bound.min(report.allowed));
            let (until, given_up) = times(bound, until, for_report);
            report.allowed = until.saturating_duration_since(begun);
            let again = report.begin(started.elapsed());
            let context = WorkContext { until, clean, again, remark: remark.clone() };
            going.push(async move {
                let doing = async { timeout_at(given_up, work.begin(context)).await };
                (work, remark, AssertUnwindSafe(doing).catch_unwind().await)
            });
        }
        if work.iter().any(|(work, _)| work.bound.is_some()) {
            journal.work.clone_from(&run.work);
            journal.note_again(&run.groups).await;
        }
        let mut not_told = Vec::new();
        let called_off = signals.clone().called_off();
        tokio::pin!(called_off);
        loop {
            let (work, remark, end) = tokio::select! {
                biased;
                next = going.next() => match next {
                    Some((work, remark, Ok(worked))) => {
                        if let Ok(Err(WorkError::NotTold(pods))) = &worked {
                            not_told.extend(pods.iter().cloned());
                        }
                        (work, remark, WorkEnd::of(worked))
                    }
                    Some((work, remark, Err(_))) => (work, remark, WorkEnd::panicked()),
                    None => return not_told,
                },
                // The node stays up, so statuses that were not sent can still be sent later.
                () = &mut called_off => break,
            };
            self.release_work_ended(run, work, started, end, remark);
        }
        for (work, remark) in &work {
            self.release_work_ended(run, work, started, WorkEnd::Cancelled, remark);
        }
        Vec::new()
    }

    /// Returns the work that is left to do before the release, each with an empty remark.
    fn release_work(&self, run: &RunReport, started: Instant) -> Vec<(ShutdownWork, LateRemark)> {
        let left = WorkReport::left(&self.parts.work, &run.work, started.elapsed()).into_iter();
        let left = left.filter(|work| work.point == ShutdownPoint::BeforeRelease);
        left.map(|work| (work, LateRemark::default())).collect()
    }

    fn release_work_ended(
        &self,
        run: &mut RunReport,
        work: &ShutdownWork,
        started: Instant,
        end: WorkEnd,
        remark: &LateRemark,
    ) {
        let mut reports = run.work.iter_mut();
        let under_way =
            |report: &&mut WorkReport| report.is_of(work) && report.outcome == WorkOutcome::Running;
        if let Some(report) = reports.find(under_way) {
            self.parts.recorder.record(&report.end(work, started.elapsed(), end, remark));
        }
    }
}

/// When work is expected to end, and when it is given up. Work without a bound is expected to end at `until` by itself.
/// If it does not, it is given up halfway through the report's time.
fn times(bound: Option<Instant>, until: Instant, for_report: Duration) -> (Instant, Instant) {
    match bound {
        Some(bound) => (until.min(bound), until.min(bound)),
        None => (until, until + for_report / 2),
    }
}
