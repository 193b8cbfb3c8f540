//! The state of a group of a shutdown or a drain in progress, in the same words wherever it is shown.

use winddown_control::api::GroupProgress;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    Done,
    TimeIsOver,
    Ending,
    Waits,
}

impl GroupState {
    pub(crate) fn of(group: &GroupProgress) -> Self {
        match (group.started, group.finished) {
            (_, true) if group.terminated >= group.pods => Self::Done,
            // Its pods were gone when the agent came back.
            (false, _) if group.pods > 0 && group.terminated >= group.pods => Self::Done,
            (_, true) => Self::TimeIsOver,
            (true, false) => Self::Ending,
            (false, false) => Self::Waits,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::TimeIsOver => "time is over",
            Self::Ending => "terminating",
            Self::Waits => "waits",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_done_when_its_pods_are_and_late_only_when_its_time_is_over() {
        let group = |started, finished, terminated| GroupProgress {
            priority: 0,
            name: None,
            pods: 2,
            terminated,
            started,
            finished,
        };
        for (group, wanted) in [
            (group(false, false, 0), "waits"),
            (group(false, false, 2), "done"),
            (group(true, false, 1), "terminating"),
            (group(true, true, 2), "done"),
            (group(true, true, 1), "time is over"),
        ] {
            assert_eq!(GroupState::of(&group).as_str(), wanted, "{group:?}");
        }
    }
}
