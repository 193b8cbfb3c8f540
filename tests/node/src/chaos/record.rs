//! What was seen of one schedule. The invariants are functions of this and of nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

use super::strike::breakable;
use super::{Fault, Feature, Runtime};
use crate::{PodLog, TestPod};

/// Times are nanoseconds since 1970, by the clock that node and host share.
pub(super) type At = u64;

/// Everything that was seen.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) runtime: Runtime,
    /// What was switched on.
    pub(super) features: Vec<Feature>,
    /// When the program with a lock was told that it is its turn.
    pub(super) turns: Vec<At>,
    /// End notices that pods had while the node was at rest.
    pub(super) untimely: Vec<String>,
    /// The pods, with those that came later.
    pub(super) pods: Vec<TestPod>,
    /// What they wrote down.
    pub(super) logs: BTreeMap<String, PodLog>,
    /// Processes of pods that were there when the node began to go down, and what the kernel said.
    pub(super) lives: Vec<Life>,
    /// Whether logind had a lock of ours on file, from each of these times on.
    pub(super) lock: Vec<(At, bool)>,
    /// When a shutdown was asked for. Each but the last came to nothing.
    pub(super) asked: Vec<At>,
    /// When logind said that it could not carry out a shutdown.
    pub(super) gave_up: Vec<At>,
    /// The faults that struck.
    pub(super) harms: Vec<Harm>,
    /// Pods that were ended for others, or for what they took, before any shutdown.
    pub(super) victims: Vec<String>,
    /// When a drain had ended all pods, on a node that was drained.
    pub(super) drained: Option<At>,
    /// How many processes each pod had when the node was at rest, where it came to rest.
    pub(super) at_rest: Option<BTreeMap<String, usize>>,
    /// What systemd said about processes that it killed, waited for in vain, or left alone, and when.
    pub(super) complaints: Vec<(At, String)>,
    /// Whether logind lost its patience with the lock.
    pub(super) lost_patience: bool,
    /// When the agent said that a report could not be kept.
    pub(super) excuses: Vec<At>,
    /// The reports, the oldest first.
    pub(super) reports: Vec<Value>,
}

/// One process of a pod.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) pod: String,
    /// When the kernel said that it had ended.
    pub(super) ended: Option<At>,
}

/// A fault that struck.
#[derive(Debug, Clone)]
pub(super) struct Harm {
    pub(super) fault: Fault,
    pub(super) from: At,
    /// When it was over, as far as its doer can tell.
    pub(super) to: At,
}

// === impl Record ===

impl Record {
    /// When the last shutdown was asked for.
    pub(super) fn last_asked(&self) -> At {
        self.asked.last().copied().unwrap_or(At::MAX)
    }

    /// From when to when each shutdown was under way.
    pub(super) fn shutdowns(&self) -> impl Iterator<Item = (At, At)> {
        let ends = self.asked.iter().skip(1).copied().chain([At::MAX]);
        self.asked.iter().copied().zip(ends)
    }

    /// Whether the fault was there at any time between these.
    pub(super) fn was_harmed(&self, is: impl Fn(Fault) -> bool, from: At, to: At) -> bool {
        self.harms.iter().any(|harm| is(harm.fault) && harm.from <= to && harm.to >= from)
    }

    /// Whether the fault struck at all.
    pub(super) fn had(&self, fault: Fault) -> bool {
        self.harms.iter().any(|harm| harm.fault == fault)
    }

    /// When the lock was given back for the last time; none while it is held.
    pub(super) fn released(&self) -> Option<At> {
        let mut changes = self.lock.iter().rev();
        let (at, held) = changes.next()?;
        let before = changes.next()?;
        (!held && before.1).then_some(*at)
    }

    /// Whether the pod's manifest could no longer be read: it belongs to the last group of all, whatever
    /// its priority is.
    pub(super) fn is_without_manifest(&self, pod: &TestPod) -> bool {
        self.had(Fault::ManifestBroken) && breakable(&self.pods) == Some(&*pod.name)
    }

    /// The reports of shutdowns, without those of drains and notices.
    pub(super) fn shutdown_reports(&self) -> impl DoubleEndedIterator<Item = &Value> {
        let others = [Some("drain"), Some("notice")];
        self.reports.iter().filter(move |report| !others.contains(&report["trigger"].as_str()))
    }

    /// The report of the last shutdown, if it was kept.
    pub(super) fn report(&self) -> Option<&Value> {
        self.shutdown_reports().next_back()
    }
}
