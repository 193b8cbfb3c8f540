//! The time that a plan keeps for the work of plug-ins.

use std::time::Duration;

use winddown_shared::{ShutdownPoint, ShutdownWork, millis};

use super::{Group, Plan, priority_index, share};

/// The work of a plug-in, and its time.
#[derive(Clone, Debug)]
pub struct PlannedWork {
    /// The work to be done.
    pub work: ShutdownWork,
    /// The time that it is allowed, at most its bound.
    pub allowed: Duration,
    /// When it is done, relative to the groups.
    pub(crate) place: WorkPlace,
}

/// A place between the groups of a plan, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkPlace {
    /// Before the group with this index, or after the last group if it is their number.
    Before(usize),
    /// After all pods have stopped.
    AfterPods,
    /// Just before the release, when only the report is left to do.
    Release,
}

/// Places `work` between `groups`, and limits its time to a part of `available`.
pub(super) fn place(
    groups: &[Group],
    work: &[ShutdownWork],
    available: Duration,
) -> Vec<PlannedWork> {
    let mut planned: Vec<_> = work
        .iter()
        .map(|work| PlannedWork {
            work: work.clone(),
            allowed: work.bound.unwrap_or_default(),
            place: match work.point {
                ShutdownPoint::BeforePods => WorkPlace::Before(0),
                ShutdownPoint::Before(priority) => {
                    WorkPlace::Before(priority_index(groups, priority))
                }
                ShutdownPoint::After(priority) => {
                    WorkPlace::Before(priority_index(groups, priority) + 1)
                }
                ShutdownPoint::AfterPods => WorkPlace::AfterPods,
                ShutdownPoint::BeforeRelease => WorkPlace::Release,
            },
        })
        .collect();
    planned.sort_by_key(|planned| planned.place);
    cut(&mut planned, available);
    planned
}

/// Cuts the longest places if all together take more than their part of `available`.
pub(super) fn cut(work: &mut [PlannedWork], available: Duration) {
    let places: Vec<u64> =
        work.chunk_by(|a, b| a.place == b.place).map(|here| millis(longest(here))).collect();
    let shares = share::level(&places, millis(available / ShutdownWork::PART));
    for (here, share) in work.chunk_by_mut(|a, b| a.place == b.place).zip(shares) {
        for planned in here {
            planned.allowed = planned.allowed.min(Duration::from_millis(share));
        }
    }
}

/// Returns the time of work that runs concurrently.
fn longest(work: &[PlannedWork]) -> Duration {
    work.iter().map(|planned| planned.allowed).max().unwrap_or_default()
}

impl Plan {
    /// The time kept for all work that has not started.
    pub(super) fn kept_for_work(&self) -> Duration {
        self.work.chunk_by(|a, b| a.place == b.place).map(longest).sum()
    }

    pub(super) fn kept_at(&self, place: WorkPlace) -> Duration {
        let here = self.work.chunk_by(|a, b| a.place == b.place);
        here.filter(|here| here[0].place == place).map(longest).sum()
    }

    /// The time kept for work after all pods.
    pub(crate) fn kept_after_pods(&self) -> Duration {
        self.kept_at(WorkPlace::AfterPods) + self.kept_at(WorkPlace::Release)
    }

    /// Removes and returns the work at the next place, which runs concurrently, unless that is after `place`.
    pub(crate) fn take_work(&mut self, place: WorkPlace) -> Vec<PlannedWork> {
        let Some(next) = self.work.first().map(|planned| planned.place) else { return Vec::new() };
        if next > place {
            return Vec::new();
        }
        let together = self.work.partition_point(|planned| planned.place == next);
        self.work.drain(..together).collect()
    }
}
