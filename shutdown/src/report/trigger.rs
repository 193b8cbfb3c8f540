//! What triggers runs, and how each trigger is described: one table, from which every rendering of a report takes its words.

use serde::{Deserialize, Serialize};
use winddown_shared::KillReason;

/// What triggered a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Trigger {
    /// The login manager announced the node's shutdown.
    #[default]
    LoginManager,
    /// A rehearsal used a stand-in for the login manager.
    Drill,
    /// An operator drained the node, which stays up.
    Drain,
    /// The unit was stopped while the machine went down without the login manager.
    UnitStop,
    /// A notice announced that the node goes down (spot instance, maintenance, battery).
    Notice,
}

/// How a trigger and its runs are described.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TriggerText {
    /// The trigger, as a sentence.
    pub sentence: &'static str,
    /// What such a run is called.
    pub(super) run: &'static str,
    /// The label of the end of such a run.
    pub(super) end: &'static str,
    /// When such a run is over, as a clause.
    pub(super) when_over: &'static str,
}

impl Trigger {
    /// How the trigger and its runs are described.
    pub const fn text(self) -> TriggerText {
        match self {
            Self::LoginManager => TriggerText {
                sentence: "The login manager announced that the node goes down",
                run: "shutdown",
                end: "lock released",
                when_over: "when the lock was released",
            },
            Self::Drill => TriggerText {
                sentence: "A rehearsal began",
                run: "drill",
                end: "lock released",
                when_over: "when the lock was released",
            },
            Self::Drain => TriggerText {
                sentence: "An operator started a drain",
                run: "drain",
                end: "drain finished",
                when_over: "when the drain was over",
            },
            // The lock, if there is one, is not this run's.
            Self::UnitStop => TriggerText {
                sentence: "The service was stopped while the machine went down",
                run: "shutdown",
                end: "shutdown finished",
                when_over: "when its time was over",
            },
            Self::Notice => TriggerText {
                sentence: "A notice began the run",
                run: "shutdown",
                end: "shutdown finished",
                when_over: "when its time was over",
            },
        }
    }

    /// The reason that is given to the pod workers.
    pub fn kill_reason(self) -> KillReason {
        match self {
            Self::Drain => KillReason::Drain,
            Self::LoginManager | Self::Drill | Self::UnitStop | Self::Notice => {
                KillReason::Shutdown
            }
        }
    }
}
