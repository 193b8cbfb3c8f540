//! How pods terminated in a run: one table, from which every rendering of a report takes its words, its colours and the
//! order of its pods, and the run its outcome.

use serde::{Deserialize, Serialize};
use winddown_shared::PodStopped;

use super::{Outcome, Tone};

/// How a pod terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PodEnd {
    /// It was not requested to stop, because its group was not started.
    Spared,
    /// It exited by itself within its grace period.
    Exited,
    /// None of its containers ran when it was requested to stop: it was starting, or waited to be restarted.
    NotRunning,
    /// It needed SIGKILL.
    Killed,
    /// It was requested to stop, and was still stopping when the run was cancelled.
    #[serde(alias = "ending")]
    Terminating,
    /// It was not requested to stop, because it keeps running through the soft reboot.
    Survives,
    /// It was not stopped, because only the end of the node stops it: the runtime refuses it to a drain.
    #[serde(alias = "stays")]
    NotDrainable,
    /// It was not seen to stop.
    #[serde(alias = "left")]
    StillRunning,
    /// It was gone when the next agent looked, and no agent had asked it to terminate.
    Gone,
}

/// How the end of a pod is described, and what it means for the run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PodEndText {
    /// What became of a pod.
    pub word: &'static str,
    /// The label of several such pods.
    pub several: &'static str,
    /// Decides the colour; none where nothing is to be noticed.
    pub tone: Option<Tone>,
    /// The place of such a pod among others; the worst is 0.
    pub severity: u8,
    /// What is said of a pod beside the word, or instead of it.
    pub detail: EndDetail,
    stop: Stop,
    /// The best outcome of a run with such a pod.
    pub(crate) outcome: Outcome,
}

/// What is said of a pod beside the word of its end, or instead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndDetail {
    /// Nothing: the word is all.
    Nothing,
    /// Instead of the word, how long it took.
    Duration,
    /// The containers, and in a picture how long it took.
    Containers,
    /// The containers, or the error if none is known.
    ContainersOrError,
    /// Instead of the word, the error, which is the reason.
    Reason,
}

/// Whether a pod has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Seen,
    Unseen,
    None,
}

// === impl PodEnd ===

impl PodEnd {
    /// All ends, in the order in which they are counted.
    pub const ALL: [Self; 9] = [
        Self::Exited,
        Self::NotRunning,
        Self::Killed,
        Self::Terminating,
        Self::StillRunning,
        Self::Gone,
        Self::Spared,
        Self::Survives,
        Self::NotDrainable,
    ];

    /// The [`severity`](PodEndText::severity) of an end that needs no attention.
    pub const FINE: u8 = 4;

    /// How the end is described.
    // Over the limit because it is a table: one row per end of a pod.
    pub const fn text(self) -> PodEndText {
        match self {
            Self::Exited => PodEndText {
                word: "by itself",
                several: "exited by themselves",
                tone: Some(Tone::Good),
                severity: Self::FINE,
                detail: EndDetail::Duration,
                stop: Stop::Seen,
                outcome: Outcome::Clean,
            },
            Self::NotRunning => PodEndText {
                word: "was not running",
                several: "not running",
                tone: None,
                severity: 3,
                detail: EndDetail::Nothing,
                stop: Stop::Seen,
                outcome: Outcome::Clean,
            },
            Self::Killed => PodEndText {
                word: "killed",
                several: "killed",
                tone: Some(Tone::Warn),
                severity: 1,
                detail: EndDetail::Containers,
                stop: Stop::Seen,
                outcome: Outcome::Forced,
            },
            Self::Terminating => PodEndText {
                word: "was still terminating",
                several: "still terminating",
                tone: Some(Tone::Warn),
                severity: 3,
                detail: EndDetail::Nothing,
                stop: Stop::None,
                outcome: Outcome::Incomplete,
            },
            Self::StillRunning => PodEndText {
                word: "STILL RUNS",
                several: "not seen to terminate",
                tone: Some(Tone::Bad),
                severity: 0,
                detail: EndDetail::ContainersOrError,
                stop: Stop::None,
                outcome: Outcome::Incomplete,
            },
            Self::Gone => PodEndText {
                word: "gone when the agent came back",
                several: "gone when the agent came back",
                tone: Some(Tone::Bad),
                severity: 1,
                detail: EndDetail::Nothing,
                stop: Stop::Unseen,
                outcome: Outcome::Incomplete,
            },
            Self::Spared => PodEndText {
                word: "spared",
                several: "spared",
                tone: None,
                severity: Self::FINE,
                detail: EndDetail::Nothing,
                stop: Stop::None,
                outcome: Outcome::Incomplete,
            },
            Self::Survives => PodEndText {
                word: "survived the soft-reboot",
                several: "survived",
                tone: Some(Tone::Good),
                severity: Self::FINE,
                detail: EndDetail::Nothing,
                stop: Stop::None,
                outcome: Outcome::Clean,
            },
            Self::NotDrainable => PodEndText {
                word: "stays",
                several: "stay",
                tone: None,
                severity: Self::FINE,
                detail: EndDetail::Reason,
                stop: Stop::None,
                outcome: Outcome::Clean,
            },
        }
    }

    /// How a pod terminated that stopped like this.
    pub(crate) fn of(stopped: &PodStopped) -> Self {
        match () {
            () if stopped.forced() => Self::Killed,
            () if stopped.nothing_ran => Self::NotRunning,
            () => Self::Exited,
        }
    }

    /// Whether the pod was seen to stop.
    pub fn is_over(self) -> bool {
        self.text().stop == Stop::Seen
    }

    /// Whether the pod has terminated, seen or not.
    pub fn has_terminated(self) -> bool {
        self.text().stop != Stop::None
    }

    /// Whether the pod was to be stopped, and may still run.
    pub fn is_left(self) -> bool {
        !self.has_terminated() && self.text().outcome == Outcome::Incomplete
    }

    /// Whether the pod exited by itself, or was not to be stopped.
    pub(crate) fn is_graceful(self) -> bool {
        self == Self::Spared || self.text().outcome == Outcome::Clean
    }
}
