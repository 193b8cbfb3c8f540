//! The time that a plan keeps for work of plug-ins.

use std::time::Duration;

use winddown_shared::{ShutdownPoint, ShutdownWork};

use super::{Group, Plan, priority_index, share};

/// Work of a plug-in, and its time.
#[derive(Clone, Debug)]
pub struct PlannedWork {
    /// What is done.
    pub work: ShutdownWork,
    /// The time it has, at most its bound.
    pub allowed: Duration,
    /// Where in the plan.
    pub(crate) place: WorkPlace,
}

/// A place between the groups of a plan, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkPlace {
    /// Before the group of that index, or behind the last one.
    Before(usize),
    /// When all pods have ended.
    AfterPods,
    /// When nothing is left but the report.
    Release,
}

/// Puts `work` in its places between `groups`, with the time it has of `available`.
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

/// Cuts the longest where they are too long together for `available`.
pub(super) fn cut(work: &mut [PlannedWork], available: Duration) {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let places: Vec<u64> =
        work.chunk_by(|a, b| a.place == b.place).map(|here| millis(longest(here))).collect();
    let shares = share::level(&places, millis(available / ShutdownWork::PART));
    for (here, share) in work.chunk_by_mut(|a, b| a.place == b.place).zip(shares) {
        for planned in here {
            planned.allowed = planned.allowed.min(Duration::from_millis(share));
        }
    }
}

/// The time of work that goes on together.
fn longest(work: &[PlannedWork]) -> Duration {
    work.iter().map(|planned| planned.allowed).max().unwrap_or_default()
}

impl Plan {
    /// The time kept for all work that has not begun.
    pub(super) fn kept_for_work(&self) -> Duration {
        self.work.chunk_by(|a, b| a.place == b.place).map(longest).sum()
    }

    /// The time kept for work at `place`.
    pub(super) fn kept_at(&self, place: WorkPlace) -> Duration {
        let here = self.work.chunk_by(|a, b| a.place == b.place);
        here.filter(|here| here[0].place == place).map(longest).sum()
    }

    /// The time kept for work after all pods.
    pub(crate) fn kept_after_pods(&self) -> Duration {
        self.kept_at(WorkPlace::AfterPods) + self.kept_at(WorkPlace::Release)
    }

    /// Takes the next work out that comes no later than `place`: what goes on together.
    pub(crate) fn take_work(&mut self, place: WorkPlace) -> Vec<PlannedWork> {
        let Some(next) = self.work.first().map(|planned| planned.place) else { return Vec::new() };
        if next > place {
            return Vec::new();
        }
        let together = self.work.partition_point(|planned| planned.place == next);
        self.work.drain(..together).collect()
    }
}
