//! The record of a schedule. The invariants are functions of this alone.

use std::collections::BTreeMap;

use serde_json::Value;

use super::judge::within;
use super::strike::breakable;
use super::{Fault, Feature, Runtime};
use crate::witness::{At, Life};
use crate::{PodLog, TestPod};

/// Everything that was seen.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) runtime: Runtime,
    /// The enabled features.
    pub(super) features: Vec<Feature>,
    /// Pods that had an termination notice while the node was at rest.
    pub(super) untimely: Vec<String>,
    /// The pods, including those that were added later.
    pub(super) pods: Vec<TestPod>,
    /// The logs of the pods.
    pub(super) logs: BTreeMap<String, PodLog>,
    /// The processes of pods that ran when the node started to shut down, and their exits.
    pub(super) lives: Vec<Life>,
    /// Whether logind listed a lock of winddown, from each of these times on.
    pub(super) lock: Vec<(At, bool)>,
    /// When shutdowns were requested. All but the last were cancelled.
    pub(super) asked: Vec<At>,
    /// When logind reported that it could not carry out a shutdown.
    pub(super) gave_up: Vec<At>,
    /// The faults that struck.
    pub(super) harms: Vec<Harm>,
    /// When the API server had no processor, from and to.
    pub(super) slow_api: Vec<(At, At)>,
    /// Pods that were preempted, evicted or drained before any shutdown.
    pub(super) victims: Vec<String>,
    /// When a drain had stopped all pods, if the node was drained.
    pub(super) drained: Option<At>,
    /// The number of processes of each pod when the node was at rest, if it came to rest.
    pub(super) at_rest: Option<BTreeMap<String, usize>>,
    /// systemd's messages about processes that it killed, waited for in vain, or left alone.
    pub(super) complaints: Vec<(At, String)>,
    /// Whether logind stopped waiting for the lock.
    pub(super) lost_patience: bool,
    /// When the agent logged that a report could not be saved.
    pub(super) excuses: Vec<At>,
    /// The reports, oldest first.
    pub(super) reports: Vec<Value>,
}

/// A fault that struck.
#[derive(Debug, Clone)]
pub(super) struct Harm {
    pub(super) fault: Fault,
    pub(super) from: At,
    /// When it was over, as far as known.
    pub(super) to: At,
}

// === impl Record ===

impl Record {
    /// When the last shutdown was requested.
    pub(super) fn last_asked(&self) -> At {
        self.asked.last().copied().unwrap_or(At::MAX)
    }

    /// The start and end of each shutdown.
    pub(super) fn shutdowns(&self) -> impl Iterator<Item = (At, At)> {
        let ends = self.asked.iter().skip(1).copied().chain([At::MAX]);
        self.asked.iter().copied().zip(ends)
    }

    /// From when on the shutdown with this start and end can be what asks the pod to stop. A victim may still end for its
    /// own reason until logind has announced the shutdown: for it, not before the first other pod is asked.
    pub(super) fn asks_from(&self, pod: &TestPod, (from, to): (At, At)) -> At {
        if !self.victims.contains(&pod.name) {
            return from;
        }
        let others = self.logs.iter().filter(|(name, _)| !self.victims.contains(name));
        let asked = others.flat_map(|(_, log)| within(&log.terms, (from, to)));
        asked.min().unwrap_or(from)
    }

    /// Whether a matching fault was active at any time in this range.
    pub(super) fn was_harmed(&self, is: impl Fn(Fault) -> bool, from: At, to: At) -> bool {
        self.harms.iter().any(|harm| is(harm.fault) && harm.from <= to && harm.to >= from)
    }

    /// Whether the fault struck.
    pub(super) fn had(&self, fault: Fault) -> bool {
        self.harms.iter().any(|harm| harm.fault == fault)
    }

    /// When the lock was released for the last time; none while it is held.
    pub(super) fn released(&self) -> Option<At> {
        let mut changes = self.lock.iter().rev();
        let (at, held) = changes.next()?;
        let before = changes.next()?;
        (!held && before.1).then_some(*at)
    }

    /// Whether the pod's manifest became unreadable: the pod then belongs to the very last group, whatever its
    /// priority.
    pub(super) fn is_without_manifest(&self, pod: &TestPod) -> bool {
        self.had(Fault::ManifestBroken) && breakable(&self.pods) == Some(&*pod.name)
    }

    /// The reports of shutdowns, without those of drains and notices.
    pub(super) fn shutdown_reports(&self) -> impl DoubleEndedIterator<Item = &Value> {
        let others = [Some("drain"), Some("notice")];
        self.reports.iter().filter(move |report| !others.contains(&report["trigger"].as_str()))
    }

    /// The report of the last shutdown, if it was saved.
    pub(super) fn report(&self) -> Option<&Value> {
        self.shutdown_reports().next_back()
    }
}
