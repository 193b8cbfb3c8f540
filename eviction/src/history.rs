//! The latest decisions, and why they were made.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::display::bytes;
use winddown_shared::{Freed, WallTime, millis};

use crate::cause::Cause;
use crate::choose::{CandidateVerdict, Considered};
use crate::decide::Shortage;
use crate::hook::EvictionHookRun;

/// The number of evictions that are kept, and of all other decisions.
const MAX_KEPT_DECISIONS: usize = 64;
/// The number of pods that are kept of a ranking.
const MAX_KEPT_RANKED: usize = 10;

/// An eviction decision. The JSON form is a stable interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EvictionRecord {
    /// The number of the decision, counted from 1.
    pub id: u64,
    /// When the decision was made.
    pub at: WallTime,
    /// The signal or limit that caused the decision.
    pub signal: String,
    /// The least amount that should be available; absent for a limit of the pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The amount that was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// Whether the pod got one second only.
    #[serde(default)]
    pub hard: bool,
    /// How long the resource had been short, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_for_ms: Option<u64>,
    /// `namespace/name` of the pod that was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// The outcome, human-readable.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub outcome: DecisionOutcome,
    /// The run of the hook before the pod was asked to stop; absent if no hook is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<EvictionHookRun>,
    /// The first ten pods in eviction order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<RankedPodStatus>,
    /// How often the same decision was made about this signal before the next eviction.
    #[serde(default)]
    pub times: u64,
}

/// The outcome of a decision. It is written as a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
#[non_exhaustive]
pub enum DecisionOutcome {
    /// Reclaim is in progress.
    Reclaiming,
    /// Reclaim finished; the next decision shows whether it was enough.
    Reclaimed(Freed),
    /// Something else is done instead of an eviction, or was; the next decision shows whether it was enough.
    Alternative(String),
    /// The pod was asked to stop.
    Evicting,
    /// The pod has stopped.
    Evicted {
        /// The time from the request until it stopped, in ms.
        took_ms: u64,
    },
    /// The pod did not stop in time, and another one is chosen; or a shutdown or a drain began before it was asked.
    Failed {
        /// The error.
        error: String,
    },
    /// No pod qualified.
    NoCandidate {
        /// Whether a pod that may qualify was not measured.
        unmeasured: bool,
    },
    /// Dry run: the pod would have been evicted.
    Shadow,
    /// Not a decision: the kernel killed first, or a cgroup reached its own limit.
    KilledByKernel {
        /// The number of processes that the OOM killer killed since the last sample.
        processes: u64,
    },
    /// Read back from its sentence.
    Said(String),
}

/// A pod in a ranking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RankedPodStatus {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    #[serde(default)]
    pub uid: String,
    /// `spec.priority`, 0 when unset.
    #[serde(default)]
    pub priority: i32,
    /// Whether `spec.priority` is unset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_priority: bool,
    /// Its usage, in the signal's unit; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<i64>,
    /// Whether it uses more than that, which could not be counted in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// Its swap usage in bytes, if the signal measures memory; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// The memory that its compressed pages (zswap) occupy, in bytes; absent without zswap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// Its request.
    #[serde(default)]
    pub request: i64,
    /// The verdict: `chosen`, `notNeeded`, `critical`, `notMeasured`, `ending`, `stuck`, `refused`.
    pub verdict: String,
}

/// The last 64 evictions, and the last 64 of all other decisions: what is repeated while the node is short, such as that
/// no pod can be evicted, pushes no eviction out.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    records: VecDeque<EvictionRecord>,
    last: u64,
}

// === impl History ===

impl History {
    /// Records a decision and returns its number. A repetition of a decision since the last eviction only increases its
    /// count, whatever was decided about other signals in between.
    pub(crate) fn note(&mut self, mut record: EvictionRecord) -> u64 {
        let lately = self.records.iter_mut().rev().take_while(|known| !known.outcome.is_eviction());
        if let Some(known) = { lately }.find(|known| known.is_like(&record)) {
            known.times = known.times.saturating_add(1);
            return known.id;
        }
        self.last += 1;
        record.id = self.last;
        let is_alike =
            |known: &EvictionRecord| known.outcome.is_eviction() == record.outcome.is_eviction();
        if self.records.iter().filter(|known| is_alike(known)).count() == MAX_KEPT_DECISIONS
            && let Some(oldest) = self.records.iter().position(is_alike)
        {
            self.records.remove(oldest);
        }
        self.records.push_back(record);
        self.last
    }

    /// Records the outcome of a decision, unless the decision was dropped.
    pub(crate) fn conclude(&mut self, id: u64, outcome: DecisionOutcome) {
        if let Some(record) = self.records.iter_mut().rev().find(|record| record.id == id) {
            record.outcome = outcome;
        }
    }

    /// Records the hook's run for a decision, unless the decision was dropped.
    pub(crate) fn note_hook(&mut self, id: u64, run: EvictionHookRun) {
        if let Some(record) = self.records.iter_mut().rev().find(|record| record.id == id) {
            record.hook = Some(run);
        }
    }

    /// All decisions, oldest first.
    pub(crate) fn records(&self) -> Vec<EvictionRecord> {
        self.records.iter().cloned().collect()
    }
}

// === impl EvictionRecord ===

impl EvictionRecord {
    pub(crate) fn new(at: WallTime, cause: Cause, outcome: DecisionOutcome) -> Self {
        Self {
            id: 0,
            at,
            signal: cause.to_string(),
            threshold: None,
            available: None,
            hard: true,
            met_for_ms: None,
            victim: None,
            outcome,
            hook: None,
            ranking: Vec::new(),
            times: 1,
        }
    }

    /// Creates the record of a decision about a shortage of the node.
    pub(crate) fn about(shortage: &Shortage, at: WallTime, outcome: DecisionOutcome) -> Self {
        Self {
            threshold: Some(shortage.threshold.to_string()),
            available: Some(shortage.available.to_string()),
            hard: shortage.hard,
            met_for_ms: Some(millis(shortage.since.elapsed())),
            ..Self::new(at, shortage.cause, outcome)
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let outcome = std::mem::discriminant(&self.outcome);
        matches!(self.outcome, DecisionOutcome::NoCandidate { .. } | DecisionOutcome::Shadow)
            && (&self.signal, &self.victim, outcome)
                == (&other.signal, &other.victim, std::mem::discriminant(&other.outcome))
    }
}

// === impl DecisionOutcome ===

impl DecisionOutcome {
    /// Whether a pod was asked to stop, or was about to be.
    fn is_eviction(&self) -> bool {
        match self {
            Self::Evicting | Self::Evicted { .. } | Self::Failed { .. } => true,
            Self::Reclaiming
            | Self::Reclaimed(_)
            | Self::Alternative(_)
            | Self::NoCandidate { .. }
            | Self::Shadow
            | Self::KilledByKernel { .. }
            | Self::Said(_) => false,
        }
    }

    /// Of the pods that were considered, only the first count, which are kept.
    pub(crate) fn no_candidate(considered: &[Considered<'_>]) -> Self {
        let mut kept = considered.iter().take(MAX_KEPT_RANKED);
        Self::NoCandidate {
            unmeasured: kept.any(|pod| pod.verdict == CandidateVerdict::NotMeasured),
        }
    }

    pub(crate) fn evicted(took: Duration) -> Self {
        Self::Evicted { took_ms: millis(took) }
    }
}

impl Default for DecisionOutcome {
    fn default() -> Self {
        Self::Said(String::new())
    }
}

impl fmt::Display for DecisionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reclaiming => f.write_str("reclaiming unused disk space"),
            Self::Reclaimed(back) => {
                let items = if back.items == 1 { "item" } else { "items" };
                write!(f, "gave back {} {items}, {}", back.items, bytes(back.bytes))
            }
            Self::Alternative(what) => f.write_str(what),
            Self::Evicting => f.write_str("asked to terminate"),
            Self::Evicted { took_ms } => write!(f, "terminated in {took_ms} ms"),
            Self::Failed { error } => write!(f, "not terminated: {error}"),
            Self::NoCandidate { unmeasured: true } => {
                f.write_str("no pod qualifies for eviction yet: the usage of some is unknown")
            }
            Self::NoCandidate { unmeasured: false } => f.write_str("no pod qualifies for eviction"),
            Self::Shadow => f.write_str("would have been evicted"),
            Self::KilledByKernel { processes: 1 } => f.write_str("the kernel killed a process"),
            Self::KilledByKernel { processes } => {
                write!(f, "the kernel killed {processes} processes")
            }
            Self::Said(text) => f.write_str(text),
        }
    }
}

impl From<DecisionOutcome> for String {
    fn from(outcome: DecisionOutcome) -> Self {
        outcome.to_string()
    }
}

impl From<String> for DecisionOutcome {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

// === impl RankedPodStatus ===

impl From<&Considered<'_>> for RankedPodStatus {
    fn from(considered: &Considered<'_>) -> Self {
        let Considered { pod, usage, is_partial, swap, zswap, request, verdict } = *considered;
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            priority: pod.priority_or_zero(),
            has_no_priority: pod.priority().is_none(),
            usage,
            is_partial,
            swap,
            zswap,
            request,
            verdict: verdict.as_str().to_owned(),
        }
    }
}

pub(crate) fn first_of(considered: &[Considered<'_>]) -> Vec<RankedPodStatus> {
    considered.iter().take(MAX_KEPT_RANKED).map(RankedPodStatus::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    const MEMORY: [Signal; 2] = [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable];

    fn note(
        history: &mut History,
        signal: Signal,
        outcome: DecisionOutcome,
        victim: Option<&str>,
    ) -> u64 {
        let record = EvictionRecord::new(WallTime::UNIX_EPOCH, Cause::Signal(signal), outcome);
        history.note(EvictionRecord { victim: victim.map(str::to_owned), ..record })
    }

    fn evict(history: &mut History, pod: &str) {
        let id = note(history, MEMORY[0], DecisionOutcome::Evicting, Some(pod));
        history.conclude(id, DecisionOutcome::Evicted { took_ms: 1 });
    }

    fn evicted(history: &History) -> Vec<String> {
        let of = |record: EvictionRecord| {
            let is_eviction = matches!(record.outcome, DecisionOutcome::Evicted { .. });
            record.victim.filter(|_| is_eviction)
        };
        history.records().into_iter().filter_map(of).collect()
    }

    #[test]
    fn repetitions_of_several_signals_are_a_line_for_each_and_push_no_eviction_out() {
        let mut history = History::default();
        evict(&mut history, "first");
        for _ in 0..500 {
            for signal in MEMORY {
                note(
                    &mut history,
                    signal,
                    DecisionOutcome::NoCandidate { unmeasured: false },
                    None,
                );
            }
        }
        evict(&mut history, "second");
        note(&mut history, MEMORY[1], DecisionOutcome::NoCandidate { unmeasured: false }, None);
        let times: Vec<u64> = history.records().iter().map(|record| record.times).collect();
        assert_eq!(times, [1, 500, 500, 1, 1]);
        // What is repeated and never the same.
        for processes in 0..500 {
            note(&mut history, MEMORY[0], DecisionOutcome::KilledByKernel { processes }, None);
        }
        assert_eq!(evicted(&history), ["first", "second"]);
        for pod in 0..100 {
            evict(&mut history, &pod.to_string());
        }
        assert_eq!(evicted(&history).len(), MAX_KEPT_DECISIONS);
        assert_eq!(evicted(&history).last().map(String::as_str), Some("99"));
    }

    #[test]
    fn that_no_pod_can_be_ended_is_not_said_for_good_of_pods_that_are_not_measured() {
        let pod = crate::tests::pod("web", 0, &[]);
        let said = |verdicts: &[CandidateVerdict]| {
            let considered = verdicts.iter().map(|verdict| Considered {
                pod: &pod,
                usage: None,
                is_partial: false,
                swap: None,
                zswap: None,
                request: 0,
                verdict: *verdict,
            });
            DecisionOutcome::no_candidate(&considered.collect::<Vec<_>>()).to_string()
        };
        assert_eq!(said(&[]), "no pod qualifies for eviction");
        assert_eq!(said(&[CandidateVerdict::Critical]), "no pod qualifies for eviction");
        let unmeasured = said(&[CandidateVerdict::Critical, CandidateVerdict::NotMeasured]);
        assert_eq!(unmeasured, "no pod qualifies for eviction yet: the usage of some is unknown");
    }

    #[test]
    fn a_dry_run_that_wavers_between_two_pods_is_a_line_for_each() {
        let mut history = History::default();
        for _ in 0..10 {
            for pod in ["web", "db"] {
                note(&mut history, MEMORY[0], DecisionOutcome::Shadow, Some(pod));
            }
        }
        let times: Vec<u64> = history.records().iter().map(|record| record.times).collect();
        assert_eq!(times, [10, 10]);
    }
}
