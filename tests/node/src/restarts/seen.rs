//! What the pods' own logs and the kernel say of one deed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::scenario::group_of;
use crate::witness::{At, Life};
use crate::{PodLog, TestPod};

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
    /// Whether the deed was called off too late, on a busy machine: pods that it spares had been asked by then.
    pub(crate) was_late: bool,
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

/// What happened to the pods since their logs were empty.
pub(crate) fn pods(
    logs: &BTreeMap<String, PodLog>,
    lives: &[Life],
    processes: &BTreeMap<String, usize>,
) -> BTreeMap<String, PodSeen> {
    let seen = logs.iter().map(|(name, log)| {
        let asked = log.terms.first();
        let had = asked
            .zip(ended(name, log, lives))
            .map(|(asked, ended)| Duration::from_nanos(ended.saturating_sub(*asked)));
        let seen = PodSeen {
            starts: log.starts.len(),
            exits: log.exits.len(),
            was_asked: asked.is_some(),
            had,
            processes: processes.get(name).copied().unwrap_or(0),
        };
        (name.clone(), seen)
    });
    seen.collect()
}

/// Each pod that was asked although one of an earlier group had not ended.
pub(crate) fn order(
    pods: &[TestPod],
    logs: &BTreeMap<String, PodLog>,
    lives: &[Life],
) -> Vec<String> {
    let asked = |pod: &TestPod| logs.get(&pod.name)?.terms.first().copied();
    let ended = |pod: &TestPod| ended(&pod.name, logs.get(&pod.name)?, lives);
    let mut early = Vec::new();
    for pod in pods {
        let Some(asked) = asked(pod) else { continue };
        let earlier = pods.iter().filter(|other| group_of(other) < group_of(pod));
        let alive = earlier.filter(|other| ended(other).is_none_or(|ended| ended > asked));
        early.extend(
            alive.map(|other| format!("{} asked before {} terminated", pod.name, other.name)),
        );
    }
    early
}

/// When the pod ended: when it last said that it ran, or else when this program noted what the kernel told it, which on a
/// busy machine is later.
fn ended(name: &str, log: &PodLog, lives: &[Life]) -> Option<At> {
    let noted = lives.iter().find(|life| life.pod == name)?.ended?;
    let exited = log.exits.first();
    // The next process of the pod may have been asked too.
    let lasted = log.lasts.iter().take_while(|at| **at <= noted).last();
    Some(exited.or(lasted).map_or(noted, |said| noted.min(*said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_terminated_with_its_own_last_line_however_late_this_program_noted_its_exit() {
        let second = 1_000_000_000;
        let all = [TestPod::new("deaf", 0, 0), TestPod::new("queue", 1000, 0)];
        let life = |name: &str| Life { pod: name.to_owned(), ended: Some(9 * second) };
        let lives = ["deaf", "queue"].map(life);
        let asked = |at| PodLog { terms: vec![at], ..PodLog::default() };
        let seen = |log: PodLog| {
            let logs = [("deaf", log), ("queue", asked(5 * second))];
            let logs = logs.map(|(name, log)| (name.to_owned(), log)).into();
            let had = pods(&logs, &lives, &BTreeMap::new())["deaf"].had;
            (order(&all, &logs, &lives), had)
        };
        let exits = PodLog { exits: vec![4 * second], ..asked(second) };
        let lasts = |until| PodLog { lasts: vec![2 * second, until], ..asked(second) };
        let had = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(seen(exits), (vec![], had(3)));
        assert_eq!(seen(lasts(5 * second - 1)).0, [""; 0]);
        let early = vec!["queue asked before deaf terminated".to_owned()];
        assert_eq!(seen(lasts(5 * second + 1)).0, early);
        assert_eq!(seen(lasts(6 * second)), (early.clone(), had(5)));
        // It said nothing after it was asked.
        assert_eq!(seen(asked(second)), (early, had(8)));
    }
}
