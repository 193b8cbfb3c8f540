#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Node-pressure eviction: stops pods before the node runs out of memory, disk, inodes or tasks.
//!
//! # Behaviour
//! A [`Threshold`] is the least amount of a resource that should be available. When less is available, the node reports
//! a condition. When that has lasted for the threshold's grace period, whatever no pod needs is reclaimed (dead
//! containers, rotated logs, unused images). If that is not enough, one pod is evicted and the node is measured again.
//!
//! # Time
//! [`SamplingIntervals`]: one sample every one to ten seconds on a calm node, more often as a threshold comes near,
//! and at once when the kernel reports that tasks wait for memory; at most ten per second, or forty while memory is
//! about to run out.
//!
//! # Design
//! [`decide`] and [`choose`] are pure: from the measurements, a [`Policy`] and an [`EvictionState`] they derive what to
//! do. [`EvictionController`] does it, as one task on tokio's clock. It measures through [`Signals`], reclaims through
//! [`Reclaim`], and stops pods through [`PodKiller`](winddown_shared::PodKiller) after a [`Hook`] has run, so it can be
//! tested without a machine. [`EvictionView`] is what others see of it: conditions, history, thresholds, and the pods
//! that would be evicted.
//!
//! `eviction/` makes two pure decisions: `decide` (from measurements, policy and state to conditions and at most one act)
//! and `choose` (which pod to end, and why not the others). One task carries them out; kills and reclaim run beside it, so
//! a hung one delays no other. It sees the machine as `Signals` and reclaimable space as `Reclaim`, and chooses under the
//! `VictimLock` that it shares with preemption. Only this crate parses thresholds; the configuration knows where they are
//! in the file. The types of measurements are in `shared::stats`, because machine and runtimes produce them and eviction reads them.
//!
//! Eviction runs as one task per node, in `node/src/pressure`. It measures through `shared/host/` (the node) and
//! `Runtime` (the pods), reclaims through the runtime, and ends pods through the workers. Admission checks the
//! shutdown gate, then the pressure gate, then node fit, then whether the runtime supports what the pod asks for; refused
//! pods are checked again when the conditions or the node change. While the gate is closed, eviction pauses.
//! `WINDDOWN_NODE_CGROUP` makes a cgroup's limits the node's; tests use it to create real pressure without harming the
//! machine.
//!
//! `shared/host/` measures. `NodeUsage` keeps the kernel's files open and queries file systems off the async threads with a
//! deadline; what cannot be measured is absent, never zero. The kernel's own triggers wake `PsiWatch`. A runtime
//! reports what pods use (`Runtime::pod_stats`) and reclaims space or memory without ending one (`collect_garbage`,
//! `reclaim_memory`). The pods of a runtime that never measures them are ranked by priority alone; those of one that
//! cannot measure them now are not ended. Memory is read from cgroups, so a hung runtime hides no shortage. Disk usage is measured in bounded time and cached.
//!
//! Eviction wakes on the pressure stall information of the cgroup that bounds the node, or of the whole machine if that
//! cgroup has none. Before a pod is chosen for a disk, its usage of that disk is measured; a pod without that measurement
//! is skipped. After a pod has ended, no further pod is evicted for a signal until the freed space appears or 30 s pass
//! (`pending_reclaim.rs`).
//!
//! `RuntimeSyncer` enforces `activeDeadlineSeconds`: a step that finds the time over completes the pod and sets its status
//! message. It reads wall time once, for the pod's age when this agent first saw it.

mod admit;
mod cadence;
mod cause;
mod choose;
mod conditions;
mod controller;
mod decide;
mod exemption;
mod history;
mod hook;
mod limits;
mod memory_reclaim;
mod message;
mod observation;
mod observations;
mod pending_reclaim;
mod plan_json;
mod policy;
mod rank;
mod readmission;
mod reclaim;
mod seams;
mod signal;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod threshold;
mod unit;
mod usage;

pub use admit::{PressureGate, admits};
pub use cadence::SamplingIntervals;
pub use cause::Cause;
pub use choose::{Candidate, CandidateEnding, CandidateVerdict, Choice, Considered, choose};
pub use conditions::Conditions;
pub use controller::{EvictionController, EvictionParts, EvictionView, ExplainError, Explanation};
pub use decide::{EvictionDecision, Shortage, Snapshot, decide};
pub use exemption::Exemption;
pub use history::{DecisionOutcome, EvictionRecord, RankedPodStatus};
pub use hook::{EvictionHookRun, Hook, HookCall, HookCommand, HookRule};
pub use limits::{OverLimit, has_local_limits, over_limit};
pub use memory_reclaim::{MemoryReclaim, ReclaimMemory};
pub use message::{
    EVICTED, Message, OFFENDING_CONTAINERS, OFFENDING_CONTAINERS_USAGE, OFFENDING_POD,
    OFFENDING_POD_USAGE, STARVED_RESOURCE, container_over, empty_dir_over, node_had_condition,
    node_was_low, pod_over,
};
pub use observation::{MemoryAvailable, Observation};
pub use observations::Observations;
pub use plan_json::{AnswerRank, EvictionAnswer, RankLineError, plan_case};
pub use policy::{Policy, PressureRule, PressureScope, StaticPods};
pub use rank::{Ranked, rank};
pub use readmission::Readmission;
pub use reclaim::{Reclaimable, reclaimable};
pub use seams::{
    Alternative, AlternativeWork, EarlierEviction, EarlierEvictions, MeasureError, PlannedEviction,
    PodFigures, Readmit, Reclaim, Signals, WantedFigures,
};
pub use signal::{FileSystem, Resource, Signal, UnknownSignal};
pub use state::{EvictionState, FORGIVEN_GAP};
pub use status::{EvictionPlan, PendingReadmission, PressureStatus, SwapStatus, ThresholdStatus};
pub use threshold::{
    DEFAULT_HARD, IneffectiveThreshold, SoftGraceError, Threshold, ThresholdConfig, ThresholdError,
    ThresholdErrors, ThresholdPart, ThresholdValue, ValueError, default_hard,
    parse_minimum_reclaim, parse_soft_grace, parse_threshold,
};
pub use unit::Unit;
pub use usage::usage;
