//! The outcome of a run.

use std::time::Duration;

use winddown_shared::{KillError, KillReason, ShutdownPoint, ShutdownWork};

use super::{RunReport, RunStop};
use crate::{GroupReport, Outcome, PodEnd};

/// Why a pod was not seen to stop.
pub(super) struct Failure {
    pub(super) end: PodEnd,
    pub(super) error: String,
    pub(super) still_running: Vec<String>,
}

impl RunReport {
    /// Determines the outcome of the run.
    pub fn outcome(&self) -> Outcome {
        let any = |end| self.groups.iter().flat_map(|group| &group.pods).any(|pod| pod.end == end);
        match self.stop {
            RunStop::Cancelled => Outcome::Cancelled,
            RunStop::Panicked | RunStop::Finished if any(PodEnd::Left) || self.pods_unknown => {
                Outcome::Left
            }
            // All pods were requested to stop at once, not as planned.
            RunStop::Panicked => Outcome::Forced,
            RunStop::Finished if any(PodEnd::Killed) => Outcome::Forced,
            RunStop::Finished => Outcome::Clean,
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
        pods.filter(|pod| matches!(pod.end, PodEnd::Left | PodEnd::Ending)).count()
    }

    /// The number of groups with pods of which none was requested to stop.
    pub fn spared_groups(&self) -> usize {
        GroupReport::spared(&self.groups)
    }
}

/// Whether every pod stopped and left nothing mounted.
pub(super) fn is_clean(groups: &[GroupReport]) -> bool {
    let mut pods = groups.iter().flat_map(|group| &group.pods);
    pods.all(|pod| match pod.end {
        PodEnd::Exited | PodEnd::Killed => pod.mounts.is_empty(),
        PodEnd::Survives | PodEnd::Stays => true,
        PodEnd::Spared | PodEnd::Ending | PodEnd::Left => false,
    })
}

impl Failure {
    pub(super) fn panicked() -> Self {
        let error = "the attempt to end it panicked, which is a bug: see the agent's log";
        Self { end: PodEnd::Left, error: error.into(), still_running: Vec::new() }
    }

    /// The failure of a kill for `reason`. A pod that is refused to a drain stays on a node that stays up, as it is meant
    /// to: `kubectl drain` passes over mirror pods, too.
    pub(super) fn of(error: KillError, reason: KillReason) -> Self {
        let text = error.to_string();
        let (end, still_running) = match error {
            KillError::Deadline { still_running, .. } => (PodEnd::Left, still_running),
            KillError::Refused { .. } if reason == KillReason::Drain => (PodEnd::Stays, Vec::new()),
            _ => (PodEnd::Left, Vec::new()),
        };
        Self { end, error: text, still_running }
    }
}
