//! The work of plug-ins between the groups of a run.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use winddown_shared::{LateRemark, ShutdownWork, WorkContext, WorkError};

use super::kills::Wait;
use super::outcome::is_clean;
use super::{Cancelled, ShutdownRun};
use crate::EndingPods;
use crate::plan::WorkPlace;
use crate::report::WorkEnd;
use crate::{PlannedWork, RunPhase, WorkReport};

/// The work of plug-ins: done, in progress and to be done.
pub(super) struct PluginWork {
    pub(super) reports: Vec<WorkReport>,
    pub(super) tasks: JoinSet<Worked>,
    under_way: HashMap<Id, (ShutdownWork, LateRemark)>,
    /// The deadline of the work in progress.
    pub(super) until: Instant,
    /// The part of the pods' budget that is kept for work after the pods.
    pub(super) kept_after_pods: Duration,
}

/// The result of work, or that it timed out.
type Worked = Result<Result<(), WorkError>, Elapsed>;

impl PluginWork {
    pub(super) fn new(reports: Vec<WorkReport>, until: Instant, kept_after_pods: Duration) -> Self {
        let (tasks, under_way) = (JoinSet::new(), HashMap::new());
        Self { reports, tasks, under_way, until, kept_after_pods }
    }
}

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Does all work up to and including `place` that has not begun.
    pub(super) async fn work(&mut self, place: WorkPlace) -> Result<(), Cancelled> {
        loop {
            let together = self.plan.take_work(place);
            if together.is_empty() {
                return Ok(());
            }
            self.work_together(together).await?;
        }
    }

    async fn work_together(&mut self, together: Vec<PlannedWork>) -> Result<(), Cancelled> {
        if self.cancel.is_cancelled() {
            return Err(Cancelled);
        }
        let begun = self.elapsed();
        let clean = self.discovery.known && is_clean(&self.groups);
        let last = self.order.started + self.budget.abandon_at();
        let mut due = Vec::with_capacity(together.len());
        for PlannedWork { work, allowed, .. } in together {
            let until = (Instant::now() + allowed).min(last);
            let report = self.work.reports.iter_mut().find(|report| report.is_of(&work));
            let again = report.is_some_and(|report| report.begin(begun));
            let remark = LateRemark::default();
            due.push((work, WorkContext { until, clean, again, remark }));
        }
        self.work.until = due.iter().map(|(_, context)| context.until).max().unwrap_or(last);
        self.note(self.phase()).await;
        for (work, context) in due {
            let (doing, remark) = (work.clone(), context.remark.clone());
            let task = async move { timeout_at(context.until, doing.begin(context)).await };
            self.work.under_way.insert(self.work.tasks.spawn(task).id(), (work, remark));
        }
        let waited = self.answers(Wait::Work).await;
        self.work.tasks = JoinSet::new();
        let end = if waited.is_err() { WorkEnd::Cancelled } else { WorkEnd::TimedOut };
        for (_, (work, remark)) in std::mem::take(&mut self.work.under_way) {
            self.work_ended(&work, end.clone(), &remark);
        }
        self.note(self.phase()).await;
        waited
    }

    pub(super) fn take_work(&mut self, answer: Result<(Id, Worked), JoinError>) {
        let (id, end) = match answer {
            Ok((id, worked)) => (id, WorkEnd::of(worked)),
            Err(error) => (error.id(), WorkEnd::panicked()),
        };
        if let Some((work, remark)) = self.work.under_way.remove(&id) {
            self.work_ended(&work, end, &remark);
        }
    }

    fn work_ended(&mut self, work: &ShutdownWork, end: WorkEnd, remark: &LateRemark) {
        let now = self.elapsed();
        if let Some(report) = self.work.reports.iter_mut().find(|report| report.is_of(work)) {
            self.order.recorder.record(&report.end(work, now, end, remark));
        }
    }

    /// Limits work in progress to its part of the time until `deadline`. Returns when that is over.
    pub(super) fn hurry_work(&mut self, deadline: Duration) -> Option<Instant> {
        let now = self.elapsed();
        let part = deadline.saturating_sub(now) / ShutdownWork::PART;
        self.work.until = self.work.until.min(self.order.started + now + part);
        (!self.work.under_way.is_empty()).then_some(self.work.until)
    }

    fn phase(&self) -> RunPhase {
        match self.groups.iter().any(|group| group.started.is_some()) {
            true => RunPhase::Ending,
            false => RunPhase::LameDuck,
        }
    }
}
