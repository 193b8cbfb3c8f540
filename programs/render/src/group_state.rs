//! The state of a group of a shutdown, in the same words wherever it is shown.

use winddown_control::api::{GroupProgress, Phase};

/// The state of a group of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupState {
    Done,
    TimeIsOver,
    Ending,
    Waits,
    /// The group was asked to stop, but the shutdown was cancelled before it had stopped.
    CalledOff,
    /// The group had not been asked to stop when the shutdown was cancelled.
    Spared,
}

impl GroupState {
    pub(crate) fn of(group: &GroupProgress, phase: Phase) -> Self {
        let is_called_off = phase == Phase::Cancelled;
        match (group.started, group.finished) {
            (_, true) if group.terminated >= group.pods => Self::Done,
            // Its pods were gone when the agent came back.
            (false, _) if group.pods > 0 && group.terminated >= group.pods => Self::Done,
            (true, _) if is_called_off => Self::CalledOff,
            (false, _) if is_called_off => Self::Spared,
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
            Self::CalledOff => "cancelled",
            Self::Spared => "spared",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_whose_shutdown_was_called_off_is_neither_late_nor_waiting() {
        let group = |started, finished, terminated| GroupProgress {
            priority: 0,
            name: None,
            pods: 2,
            terminated,
            started,
            finished,
        };
        for (group, phase, wanted) in [
            (group(false, false, 0), Phase::Running, "waits"),
            (group(false, false, 2), Phase::Done, "done"),
            (group(true, false, 1), Phase::Running, "terminating"),
            (group(true, true, 2), Phase::Running, "done"),
            (group(true, true, 1), Phase::Done, "time is over"),
            (group(true, true, 2), Phase::Cancelled, "done"),
            (group(true, true, 1), Phase::Cancelled, "cancelled"),
            (group(true, false, 1), Phase::Cancelled, "cancelled"),
            (group(false, false, 0), Phase::Cancelled, "spared"),
        ] {
            assert_eq!(GroupState::of(&group, phase).as_str(), wanted, "{group:?} {phase:?}");
        }
    }
}
