//! The work of plug-ins before the shutdown is released.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use winddown_shared::{LateRemark, PodRef, ShutdownPoint, ShutdownWork, WorkContext, WorkError};

use super::ShutdownController;
use super::signals::ShutdownSignals;
use crate::EndingPods;
use crate::journal::Journal;
use crate::report::WorkEnd;
use crate::{RunReport, WorkReport};

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
        let due = begin(run, &work, started, until);
        if work.iter().any(|(work, _)| work.bound.is_some()) {
            journal.work.clone_from(&run.work);
            journal.note_again(&run.groups).await;
        }
        let last = due.iter().map(|(.., given_up)| *given_up).max().unwrap_or(until);
        // Tasks of their own: work that blocks its thread must not hold up the release.
        let (mut tasks, mut under_way) = (JoinSet::new(), Vec::new());
        for (one, context, given_up) in due {
            let work = one.0.clone();
            let task = async move { timeout_at(given_up, work.begin(context)).await };
            under_way.push((tasks.spawn(task).id(), one));
        }
        let mut not_told = Vec::new();
        let called_off = signals.clone().called_off();
        tokio::pin!(called_off);
        let rest = loop {
            let (id, end) = tokio::select! {
                biased;
                next = tasks.join_next_with_id() => match next {
                    Some(Ok((id, worked))) => {
                        if let Ok(Err(WorkError::NotTold(pods))) = &worked {
                            not_told.extend(pods.iter().cloned());
                        }
                        (id, WorkEnd::of(worked))
                    }
                    Some(Err(error)) => (error.id(), WorkEnd::panicked()),
                    None => return not_told,
                },
                // The node stays up, so statuses that were not sent can still be sent later.
                () = &mut called_off => {
                    not_told.clear();
                    break WorkEnd::Cancelled;
                }
                () = sleep_until(last) => break WorkEnd::TimedOut,
            };
            for (_, (work, remark)) in under_way.extract_if(.., |(task, _)| *task == id) {
                self.release_work_ended(run, work, started, end.clone(), remark);
            }
        };
        for (_, (work, remark)) in under_way {
            self.release_work_ended(run, work, started, rest.clone(), remark);
        }
        not_told
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
        if let Some(report) = run.work.iter_mut().find(|report| report.is_of(work)) {
            self.parts.recorder.record(&report.end(work, started.elapsed(), end, remark));
        }
    }
}

/// Marks the work as begun. Returns each with its context, and when it is given up.
fn begin<'a>(
    run: &mut RunReport,
    work: &'a [(ShutdownWork, LateRemark)],
    started: Instant,
    until: Instant,
) -> Vec<(&'a (ShutdownWork, LateRemark), WorkContext, Instant)> {
    let (begun, clean) = (Instant::now(), run.is_clean());
    let for_report = FOR_REPORT.min(until.saturating_duration_since(begun) / 4);
    let until = until - for_report;
    let due = work.iter().filter_map(|one| {
        let (work, remark) = one;
        let report = run.work.iter_mut().find(|report| report.is_of(work))?;
        let bound = work.bound.map(|bound| begun + bound.min(report.allowed));
        let (until, given_up) = times(bound, until, for_report);
        report.allowed = until.saturating_duration_since(begun);
        let again = report.begin(started.elapsed());
        Some((one, WorkContext { until, clean, again, remark: remark.clone() }, given_up))
    });
    due.collect()
}

/// When work is expected to end, and when it is given up. Work without a bound is expected to end at `until` by itself.
/// If it does not, it is given up halfway through the report's time.
fn times(bound: Option<Instant>, until: Instant, for_report: Duration) -> (Instant, Instant) {
    match bound {
        Some(bound) => (until.min(bound), until.min(bound)),
        None => (until, until + for_report / 2),
    }
}
