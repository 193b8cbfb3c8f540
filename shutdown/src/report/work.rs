//! The part of a report about the work of plug-ins.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::error::Elapsed;
use winddown_shared::{Event, LateRemark, ShutdownWork, WorkError};

use super::units::{OptionalMillis, Seconds};
use crate::PlannedWork;

/// The report of a plug-in's work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WorkReport {
    /// The name of the plug-in.
    pub plugin: String,
    /// A description of the work.
    pub what: String,
    /// The point at which the work is done, e.g. `before the pods`, `after pods of priority 0`.
    pub point: String,
    /// The time that it was allowed.
    #[serde(rename = "allowedSeconds", with = "Seconds")]
    pub allowed: Duration,
    /// When it began; absent until it does.
    #[serde(rename = "startedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Duration>,
    /// When it ended.
    #[serde(rename = "finishedMs", alias = "endedMs", with = "OptionalMillis")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Duration>,
    /// The outcome of the work.
    pub outcome: WorkOutcome,
    /// The error, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The plug-in's remark on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// The outcome of a plug-in's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum WorkOutcome {
    /// It has not begun.
    Skipped,
    /// It is in progress.
    Running,
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// It was not done in time.
    TimedOut,
    /// The shutdown was cancelled in the middle.
    Cancelled,
}

/// How work ended.
#[derive(Clone, Debug)]
pub(crate) enum WorkEnd {
    Done,
    Failed(Arc<str>),
    TimedOut,
    Cancelled,
}

// === impl WorkReport ===

impl WorkReport {
    /// Creates the report of work that has not begun.
    pub(crate) fn of(planned: &PlannedWork) -> Self {
        let PlannedWork { work, allowed, .. } = planned;
        Self {
            plugin: work.by.to_string(),
            what: work.what.to_owned(),
            point: work.point.to_string(),
            allowed: *allowed,
            started: None,
            ended: None,
            outcome: WorkOutcome::Skipped,
            error: None,
            remark: None,
        }
    }

    /// Adds reports of the `planned` work to those `carried` over from an earlier agent. Work that was
    /// running and is not planned again ended together with that agent.
    pub(crate) fn of_all(mut carried: Vec<Self>, planned: &[PlannedWork]) -> Vec<Self> {
        for report in &mut carried {
            let goes_on = planned.iter().any(|planned| report.is_of(&planned.work));
            if report.outcome == WorkOutcome::Running && !goes_on {
                report.outcome = WorkOutcome::TimedOut;
                report.error = Some("the agent was restarted in the middle".to_owned());
            }
        }
        for planned in planned {
            if !carried.iter().any(|report| report.is_of(&planned.work)) {
                carried.push(Self::of(planned));
            }
        }
        carried
    }

    /// Returns the part of `all` that is left to do at `now`, with the rest of its time, given the reports
    /// `carried` over from an earlier agent.
    pub(crate) fn left(all: &[ShutdownWork], carried: &[Self], now: Duration) -> Vec<ShutdownWork> {
        let left = |work: &ShutdownWork| {
            let report = carried.iter().find(|report| report.is_of(work));
            let bound = match report.map(|report| (report.outcome, report.started)) {
                None | Some((WorkOutcome::Skipped, _)) => work.bound,
                Some((WorkOutcome::Running, started)) => {
                    let over = started.unwrap_or(now).saturating_add(report?.allowed);
                    work.bound.map(|bound| bound.min(over.saturating_sub(now)))
                }
                Some(_) => return None,
            };
            let is_over = bound.is_some_and(|bound| bound.is_zero());
            (!is_over).then(|| work.within(bound))
        };
        all.iter().filter_map(left).collect()
    }

    /// Whether this is the report of `work`.
    pub(crate) fn is_of(&self, work: &ShutdownWork) -> bool {
        self.plugin == work.by.as_str()
            && self.what == work.what
            && self.point == work.point.to_string()
    }

    /// Marks the work as begun at `now`. Returns whether an earlier agent had begun it.
    pub(crate) fn begin(&mut self, now: Duration) -> bool {
        self.outcome = WorkOutcome::Running;
        self.started.replace(self.started.unwrap_or(now)).is_some()
    }

    /// Marks the work as ended and returns the event for that.
    pub(crate) fn end(
        &mut self,
        work: &ShutdownWork,
        now: Duration,
        end: WorkEnd,
        remark: &LateRemark,
    ) -> Event {
        self.ended = Some(now);
        self.remark = remark.get();
        let took = now.saturating_sub(self.started.unwrap_or(now));
        let (outcome, error) = match end {
            WorkEnd::Done => (WorkOutcome::Done, None),
            WorkEnd::Failed(why) => (WorkOutcome::Failed, Some(why)),
            WorkEnd::TimedOut => (WorkOutcome::TimedOut, Some("it was not done in time".into())),
            WorkEnd::Cancelled => {
                (WorkOutcome::Cancelled, Some("the shutdown was cancelled".into()))
            }
        };
        self.outcome = outcome;
        self.error = error.as_deref().filter(|_| outcome == WorkOutcome::Failed).map(str::to_owned);
        Event::PluginWorked { by: work.by, what: work.what, took, error }
    }
}

// === impl WorkEnd ===

impl WorkEnd {
    pub(crate) fn of(worked: Result<Result<(), WorkError>, Elapsed>) -> Self {
        match worked {
            Ok(Ok(())) => Self::Done,
            Ok(Err(error)) => Self::Failed(error.to_string().into()),
            Err(Elapsed { .. }) => Self::TimedOut,
        }
    }

    pub(crate) fn panicked() -> Self {
        Self::Failed("it panicked, which is a bug: see the agent's log".into())
    }
}
