//! The outcome of a run.

use std::time::Duration;

use winddown_shared::display::duration;
use winddown_shared::{KillError, KillReason, ShutdownPoint, ShutdownWork};

use super::{RunReport, RunStop};
use crate::{GroupReport, Outcome, PodEnd, PodReport};

/// Why a pod was not seen to stop.
pub(super) struct StopFailure {
    pub(super) end: PodEnd,
    pub(super) error: String,
    pub(super) still_running: Vec<String>,
}

impl RunReport {
    /// Determines the outcome of the run.
    pub fn outcome(&self) -> Outcome {
        match (self.stop, outcome_of(&self.groups, self.pods_unknown)) {
            (RunStop::Cancelled, _) => Outcome::Cancelled,
            // All pods were requested to stop at once, not as planned.
            (RunStop::Panicked, Outcome::Clean) => Outcome::Forced,
            (RunStop::Panicked | RunStop::Finished, outcome) => outcome,
        }
    }

    /// Whether every pod stopped and left nothing mounted.
    pub(crate) fn is_clean(&self) -> bool {
        self.stop == RunStop::Finished && !self.pods_unknown && is_clean(&self.groups)
    }

    /// Returns the time that the plan kept for `work` before the release.
    pub(crate) fn kept_for_release(&self, work: &[ShutdownWork]) -> Duration {
        let release = work.iter().filter(|work| work.point == ShutdownPoint::BeforeRelease);
        let report = |work| self.work.iter().find(|report| report.is_of(work));
        release.filter_map(report).map(|report| report.allowed).max().unwrap_or_default()
    }

    /// The number of pods that were not seen to stop.
    pub fn left(&self) -> usize {
        let pods = self.groups.iter().flat_map(|group| &group.pods);
        pods.filter(|pod| pod.end.is_left() && pod.end != PodEnd::Spared).count()
    }

    /// The number of groups with pods of which none was requested to stop.
    pub fn spared_groups(&self) -> usize {
        GroupReport::spared(&self.groups)
    }
}

/// The outcome of a run that is over: clean or forced only if the end of each pod was seen. The one answer to whether all
/// pods ended, for each report and event.
pub(crate) fn outcome_of(groups: &[GroupReport], pods_unknown: bool) -> Outcome {
    let ends = groups.iter().flat_map(|group| &group.pods).map(|pod| pod.end.text().outcome);
    let unknown = pods_unknown.then_some(Outcome::Incomplete);
    ends.chain(unknown).max().unwrap_or(Outcome::Clean)
}

/// Whether every pod stopped and left nothing mounted.
pub(super) fn is_clean(groups: &[GroupReport]) -> bool {
    let mut pods = groups.iter().flat_map(|group| &group.pods);
    let left_nothing = |pod: &PodReport| !pod.end.is_over() || pod.mounts.is_empty();
    outcome_of(groups, false) != Outcome::Incomplete && pods.all(left_nothing)
}

impl StopFailure {
    pub(super) fn panicked() -> Self {
        Self::running("the attempt to terminate it panicked, which is a bug: see the agent's log")
    }

    fn running(error: impl Into<String>) -> Self {
        Self { end: PodEnd::StillRunning, error: error.into(), still_running: Vec::new() }
    }

    /// The failure of a kill for `reason`, without the pod's name, which stands beside it. A pod that is refused to a drain
    /// stays on a node that stays up, as it is meant to: `kubectl drain` passes over mirror pods, too.
    pub(super) fn of(error: KillError, reason: KillReason) -> Self {
        match error {
            KillError::Deadline { waited, still_running, .. } => {
                let colon = if still_running.is_empty() { "" } else { ": " };
                let names = still_running.join(", ");
                let error = format!("not gone after {}{colon}{names}", duration(waited));
                Self { still_running, ..Self::running(error) }
            }
            KillError::Refused { why, .. } if reason == KillReason::Drain => {
                Self { end: PodEnd::NotDrainable, ..Self::running(&*why) }
            }
            KillError::Refused { why, .. } => Self::running(&*why),
            other => Self::running(other.to_string()),
        }
    }
}
