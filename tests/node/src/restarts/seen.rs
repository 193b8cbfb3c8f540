//! What the pods' own logs and the kernel say of one deed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scenario::group_of;
use crate::witness::{At, Life};
use crate::{PodLog, TestPod};

/// How late this program may note an exit of which the kernel told it, on a busy machine, in
/// nanoseconds.
const NOTED: At = 100_000_000;

/// What was seen of a deed.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The time until the last of the pods that it asks had ended.
    pub(super) took: Duration,
    pub(super) pods: BTreeMap<String, PodSeen>,
    /// Each pod that was asked before one of an earlier group had ended.
    pub(super) order: Vec<String>,
    /// The outcome in the report of a shutdown.
    pub(super) report: Option<String>,
}

/// What happened to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSeen {
    pub(super) starts: usize,
    /// The voluntary exits.
    pub(super) exits: usize,
    pub(super) was_asked: bool,
    /// The time from the first SIGTERM to the end of the process, however it ended.
    pub(super) had: Option<Duration>,
    /// How many first processes it had at the end.
    pub(super) processes: usize,
}

/// What happened to the pods between two readings of their logs.
pub(super) fn pods(
    before: &BTreeMap<String, PodLog>,
    after: &BTreeMap<String, PodLog>,
    lives: &[Life],
    processes: &BTreeMap<String, usize>,
) -> BTreeMap<String, PodSeen> {
    let none = PodLog::default();
    let seen = after.iter().map(|(name, log)| {
        let old = before.get(name).unwrap_or(&none);
        let asked = log.terms.get(old.terms.len()).copied();
        let ended = lives.iter().find(|life| life.pod == *name).and_then(|life| life.ended);
        let had = asked.zip(ended).map(|(asked, ended)| ended.saturating_sub(asked));
        let seen = PodSeen {
            starts: log.starts.len() - old.starts.len(),
            exits: log.exits.len() - old.exits.len(),
            was_asked: asked.is_some(),
            had: had.map(Duration::from_nanos),
            processes: processes.get(name).copied().unwrap_or(0),
        };
        (name.clone(), seen)
    });
    seen.collect()
}

/// Each pod that was asked although one of an earlier group had not ended.
pub(super) fn order(
    pods: &[TestPod],
    before: &BTreeMap<String, PodLog>,
    after: &BTreeMap<String, PodLog>,
    lives: &[Life],
) -> Vec<String> {
    let asked = |pod: &TestPod| {
        let old = before.get(&pod.name).map_or(0, |log| log.terms.len());
        after.get(&pod.name)?.terms.get(old).copied()
    };
    let ended = |pod: &TestPod| lives.iter().find(|life| life.pod == pod.name)?.ended;
    let mut early = Vec::new();
    for pod in pods {
        let Some(asked) = asked(pod) else { continue };
        let earlier = pods.iter().filter(|other| group_of(other) < group_of(pod));
        let is_alive = |ended: At| ended > asked + NOTED;
        let alive = earlier.filter(|other| ended(other).is_none_or(is_alive));
        early.extend(alive.map(|other| format!("{} asked before {} ended", pod.name, other.name)));
    }
    early
}
