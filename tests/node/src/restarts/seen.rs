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
pub(crate) struct Seen {
    /// The time until the last of the pods that it asks had ended.
    pub(crate) took: Duration,
    pub(crate) pods: BTreeMap<String, PodSeen>,
    /// Each pod that was asked before one of an earlier group had ended.
    pub(crate) order: Vec<String>,
    /// The outcome in the report of a shutdown.
    pub(crate) report: Option<String>,
}

/// What happened to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) starts: usize,
    /// The voluntary exits.
    pub(crate) exits: usize,
    pub(crate) was_asked: bool,
    /// The time from the first SIGTERM to the end of the process, however it ended.
    pub(crate) had: Option<Duration>,
    /// How many first processes it had at the end.
    pub(crate) processes: usize,
}

/// What happened to the pods between two readings of their logs.
pub(crate) fn pods(
    before: &BTreeMap<String, PodLog>,
    after: &BTreeMap<String, PodLog>,
    lives: &[Life],
    processes: &BTreeMap<String, usize>,
) -> BTreeMap<String, PodSeen> {
    let none = PodLog::default();
    let seen = after.iter().map(|(name, log)| {
        let old = before.get(name).unwrap_or(&none);
        let asked = log.terms.get(old.terms.len()).copied();
        let had = asked
            .zip(ended(name, old, log, lives))
            .map(|(asked, ended)| ended.saturating_sub(asked));
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
pub(crate) fn order(
    pods: &[TestPod],
    before: &BTreeMap<String, PodLog>,
    after: &BTreeMap<String, PodLog>,
    lives: &[Life],
) -> Vec<String> {
    let asked = |pod: &TestPod| {
        let old = before.get(&pod.name).map_or(0, |log| log.terms.len());
        after.get(&pod.name)?.terms.get(old).copied()
    };
    let none = PodLog::default();
    let ended = |pod: &TestPod| {
        let old = before.get(&pod.name).unwrap_or(&none);
        ended(&pod.name, old, after.get(&pod.name)?, lives)
    };
    let mut early = Vec::new();
    for pod in pods {
        let Some(asked) = asked(pod) else { continue };
        let earlier = pods.iter().filter(|other| group_of(other) < group_of(pod));
        let is_alive = |ended: At| ended > asked + NOTED;
        let alive = earlier.filter(|other| ended(other).is_none_or(is_alive));
        early.extend(
            alive.map(|other| format!("{} asked before {} terminated", pod.name, other.name)),
        );
    }
    early
}

/// When the pod ended: when it said so itself, or else when this program noted what the kernel told it.
fn ended(name: &str, before: &PodLog, after: &PodLog, lives: &[Life]) -> Option<At> {
    let noted = lives.iter().find(|life| life.pod == name)?.ended?;
    let said = after.exits.get(before.exits.len()).copied();
    Some(said.map_or(noted, |said| said.min(noted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_said_when_it_exited_ended_then_however_late_this_program_noted_it() {
        let second = 1_000_000_000;
        let all = [TestPod::new("queue", 1000, 0), TestPod::new("agent", 2_000_000_000, 0)];
        let log =
            |asked: At, exits: Vec<At>| PodLog { terms: vec![asked], exits, ..PodLog::default() };
        let life = |name: &str, ended| Life { pod: name.to_owned(), ended: Some(ended) };
        let lives = [life("queue", 9 * second), life("agent", 9 * second)];
        let early = |exits| {
            let after = [("queue", log(second, exits)), ("agent", log(3 * second, vec![]))];
            let after = after.map(|(name, log)| (name.to_owned(), log)).into();
            order(&all, &BTreeMap::new(), &after, &lives)
        };
        assert_eq!(early(vec![2 * second]), [""; 0]);
        assert_eq!(early(vec![]), ["agent asked before queue terminated"]);
    }
}
