//! The latest decisions, and why they were made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use winddown_shared::{PodLabel, WallTime};

use crate::cause::Cause;
use crate::choose::{CandidateVerdict, Considered};
use crate::decide::Act;
use crate::hook::HookRun;
use crate::seams::Reclaimed;

/// The number of evictions that are kept, and of all other decisions.
const MAX_KEPT_DECISIONS: usize = 64;
/// The number of pods that are kept of a ranking.
const MAX_KEPT_RANKED: usize = 10;

/// One decision. The JSON form is a stable interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// The number of the decision, counted from 1.
    pub id: u64,
    /// When the decision was made.
    pub at: WallTime,
    /// The cause: a signal, `memoryPressure`, or a limit of the pod's own.
    pub signal: Cause,
    /// The least amount that should be available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The amount that was available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// Whether the threshold was a hard one; true for causes without a threshold.
    pub hard: bool,
    /// How long the resource had been short, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_for_ms: Option<u64>,
    /// The pod that was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub victim: Option<PodName>,
    /// The outcome.
    pub outcome: DecisionOutcome,
    /// The run of the hook before the pod was asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookRun>,
    /// The first ten pods in eviction order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<RankedPod>,
    /// How often the same decision was made about this signal before the next eviction.
    pub times: u64,
    /// When it was last made.
    pub last_at: WallTime,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum DecisionOutcome {
    /// Reclaim is in progress.
    Reclaiming,
    /// Reclaim finished; the next decision shows whether it was enough.
    Reclaimed(Reclaimed),
    /// The kernel is reclaiming memory from the pod that would be evicted.
    ReclaimingMemory {
        /// The pod.
        from: PodName,
    },
    /// The memory reclaim finished; the next decision shows whether it was enough.
    #[serde(rename_all = "camelCase")]
    ReclaimedMemory {
        /// The pod.
        from: PodName,
        /// The bytes by which its memory usage fell.
        bytes: u64,
        /// How long it took, in ms.
        took_ms: u64,
        /// The error, if the reclaim failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The pod was asked to stop.
    Evicting,
    /// The pod has stopped.
    #[serde(rename_all = "camelCase")]
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
    #[serde(rename = "nobody")]
    NoCandidate,
    /// Dry run: the pod would have been evicted.
    Shadow,
    /// Not a decision: the kernel killed first, or a cgroup reached its own limit.
    KilledByKernel {
        /// The number of processes that the OOM killer killed since the last sample.
        processes: u64,
    },
}

/// The identity of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodName {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: String,
}

/// A pod in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RankedPod {
    /// The pod.
    #[serde(flatten)]
    pub pod: PodName,
    /// `spec.priority`, 0 when unset.
    pub priority: i32,
    /// Its usage of the short resource: bytes, inodes or tasks; none if it was not measured.
    pub usage: Option<i64>,
    /// Its swap usage, in bytes; none if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<u64>,
    /// The memory that its compressed pages (zswap) occupied, in bytes; none if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zswap: Option<u64>,
    /// Its request.
    pub request: i64,
    /// Whether it was chosen, and if not, why.
    pub verdict: CandidateVerdict,
}

/// The last 64 evictions, and the last 64 of all other decisions: what is repeated while the node is short, such as that
/// no pod can be evicted, pushes no eviction out.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    records: VecDeque<DecisionRecord>,
    last: u64,
}

// === impl History ===

impl History {
    /// Records a decision and returns its number. A repetition of a decision since the last eviction only increases its
    /// count, whatever was decided about other signals in between.
    pub(crate) fn note(&mut self, mut record: DecisionRecord) -> u64 {
        let lately = self.records.iter_mut().rev().take_while(|known| !known.outcome.is_eviction());
        if let Some(known) = { lately }.find(|known| known.is_like(&record)) {
            known.times = known.times.saturating_add(1);
            known.last_at = record.at;
            return known.id;
        }
        self.last += 1;
        record.id = self.last;
        let is_alike =
            |known: &DecisionRecord| known.outcome.is_eviction() == record.outcome.is_eviction();
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
    pub(crate) fn note_hook(&mut self, id: u64, run: HookRun) {
        if let Some(record) = self.records.iter_mut().rev().find(|record| record.id == id) {
            record.hook = Some(run);
        }
    }

    /// All decisions, oldest first.
    pub(crate) fn records(&self) -> Vec<DecisionRecord> {
        self.records.iter().cloned().collect()
    }
}

// === impl DecisionRecord ===

impl DecisionRecord {
    pub(crate) fn new(at: WallTime, signal: Cause, outcome: DecisionOutcome) -> Self {
        Self {
            id: 0,
            at,
            signal,
            threshold: None,
            available: None,
            hard: true,
            short_for_ms: None,
            victim: None,
            outcome,
            hook: None,
            ranking: Vec::new(),
            times: 1,
            last_at: at,
        }
    }

    /// Creates the record of a decision about a shortage of the node.
    pub(crate) fn about(act: &Act, at: WallTime, outcome: DecisionOutcome) -> Self {
        Self {
            threshold: Some(act.threshold.to_string()),
            available: Some(act.available.to_string()),
            hard: act.hard,
            short_for_ms: Some(millis(act.since.elapsed())),
            ..Self::new(at, act.cause, outcome)
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        matches!(self.outcome, DecisionOutcome::NoCandidate | DecisionOutcome::Shadow)
            && (self.signal, &self.victim, &self.outcome)
                == (other.signal, &other.victim, &other.outcome)
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
            | Self::ReclaimingMemory { .. }
            | Self::ReclaimedMemory { .. }
            | Self::NoCandidate
            | Self::Shadow
            | Self::KilledByKernel { .. } => false,
        }
    }

    pub(crate) fn evicted(took: Duration) -> Self {
        Self::Evicted { took_ms: millis(took) }
    }

    pub(crate) fn reclaimed_memory(
        from: PodName,
        taken: Result<u64, String>,
        took: Duration,
    ) -> Self {
        let (bytes, error) = taken.map_or_else(|error| (0, Some(error)), |bytes| (bytes, None));
        Self::ReclaimedMemory { from, bytes, took_ms: millis(took), error }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// === impl PodName ===

impl From<&PodLabel> for PodName {
    fn from(label: &PodLabel) -> Self {
        Self {
            namespace: label.namespace.clone(),
            name: label.name.clone(),
            uid: label.uid.to_string(),
        }
    }
}

// === impl RankedPod ===

impl From<&Considered<'_>> for RankedPod {
    fn from(considered: &Considered<'_>) -> Self {
        Self {
            pod: considered.pod.label().into(),
            priority: considered.pod.priority_or_zero(),
            usage: considered.usage,
            swap: considered.swap,
            zswap: considered.zswap,
            request: considered.request,
            verdict: considered.verdict,
        }
    }
}

pub(crate) fn first_of(considered: &[Considered<'_>]) -> Vec<RankedPod> {
    considered.iter().take(MAX_KEPT_RANKED).map(RankedPod::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    const MEMORY: [Signal; 2] = [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable];

    fn name(pod: &str) -> PodName {
        PodName { namespace: "shop".into(), name: pod.into(), uid: pod.to_owned() }
    }

    fn note(
        history: &mut History,
        signal: Signal,
        outcome: DecisionOutcome,
        victim: Option<&str>,
    ) -> u64 {
        let record = DecisionRecord::new(WallTime::UNIX_EPOCH, Cause::Signal(signal), outcome);
        history.note(DecisionRecord { victim: victim.map(name), ..record })
    }

    fn evict(history: &mut History, pod: &str) {
        let id = note(history, MEMORY[0], DecisionOutcome::Evicting, Some(pod));
        history.conclude(id, DecisionOutcome::Evicted { took_ms: 1 });
    }

    fn evicted(history: &History) -> Vec<String> {
        let of = |record: DecisionRecord| {
            let is_eviction = matches!(record.outcome, DecisionOutcome::Evicted { .. });
            record.victim.filter(|_| is_eviction).map(|pod| pod.name.to_string())
        };
        history.records().into_iter().filter_map(of).collect()
    }

    #[test]
    fn repetitions_of_several_signals_are_a_line_for_each_and_push_no_eviction_out() {
        let mut history = History::default();
        evict(&mut history, "first");
        for _ in 0..500 {
            for signal in MEMORY {
                note(&mut history, signal, DecisionOutcome::NoCandidate, None);
            }
        }
        evict(&mut history, "second");
        note(&mut history, MEMORY[1], DecisionOutcome::NoCandidate, None);
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
