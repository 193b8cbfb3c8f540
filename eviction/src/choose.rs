//! Whom to end.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use winddown_shared::{Pod, PodStats};

use crate::condition::Condition;
use crate::decide::Act;
use crate::policy::{BEYOND_GRACE, HARD_GRACE, Policy};
use crate::rank::{Ranked, rank_by};
use crate::signal::Resource;
use crate::usage::measured;

#[cfg(test)]
mod tests;

/// A pod on the node.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it uses; none when it was not measured.
    pub stats: Option<&'a PodStats>,
    /// How fast its memory grows, in bytes per second; none when that is not known. Decides between pods that are alike.
    pub growth: Option<i64>,
    /// It is ending already.
    pub ending: Option<Ending>,
}

/// How far a pod's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When it should be gone.
    pub due: Instant,
    /// It was asked to end within a second, so its grace cannot be cut.
    pub hurried: bool,
    /// It was ended because of such a shortage.
    pub evicted_for: Option<Condition>,
}

/// The victim, and why the other pods were not chosen.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// The victim; none if no pod qualifies, or if pods that are already ending are awaited.
    pub victim: Option<&'a Pod>,
    /// Pods that are ending free enough, or were ended for this shortage.
    pub waits: bool,
    /// All pods in eviction order.
    pub considered: Vec<Considered<'a>>,
}

/// One pod in the ranking.
#[derive(Clone, Copy, Debug)]
pub struct Considered<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it uses: bytes, inodes or processes.
    pub usage: Option<i64>,
    /// What it has in swap, in bytes; none if that was not measured, or memory is not what is short.
    pub swap: Option<u64>,
    /// The memory that its compressed pages take, in bytes; none likewise.
    pub zswap: Option<u64>,
    /// Its request: pods above theirs are evicted first.
    pub request: i64,
    /// What was made of it.
    pub verdict: Verdict,
}

/// What was made of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is ended.
    Chosen,
    /// Its turn comes later: one pod at a time.
    NotNeeded,
    /// The node cannot do without it.
    Critical,
    /// It was not measured.
    NotMeasured,
    /// It is ending and will free what it uses.
    Ending,
    /// It has not ended in time.
    Stuck,
}

/// How long to wait for ending pods under memory or PID pressure.
const SOON: Duration = HARD_GRACE.saturating_add(BEYOND_GRACE);
/// The same for disks, where a pod's files are removed after its end.
const SOON_ON_DISK: Duration = Duration::from_secs(40);

/// Chooses the pod to end.
///
/// One at a time: while a pod that was chosen for the same shortage is ending, no other pod is
/// chosen. Pods that are ending for other reasons are awaited if they free enough. With a hard
/// threshold, a pod that takes too long is a candidate again, and its grace is cut. Pods without
/// figures and pods that the policy spares are skipped.
#[must_use]
pub fn choose<'a>(
    act: &Act,
    candidates: &[Candidate<'a>],
    policy: &Policy,
    now: Instant,
) -> Choice<'a> {
    let mut ranked: Vec<(Ranked<'a>, &Candidate<'a>)> = candidates
        .iter()
        .map(|candidate| {
            let &Candidate { pod, stats, .. } = candidate;
            let usage = stats.and_then(|stats| measured(act.signal, pod, stats, policy));
            let growth = candidate.growth.filter(|_| act.resource() == Resource::Memory);
            (Ranked { pod, usage, growth }, candidate)
        })
        .collect();
    rank_by(act.signal, policy.memory_tie, &mut ranked, |(ranked, _)| *ranked);
    let mut coming = 0_i64;
    let mut asked = false;
    let mut considered: Vec<Considered<'a>> = Vec::with_capacity(ranked.len());
    for (ranked, &Candidate { stats, ending, .. }) in ranked {
        let Ranked { pod, usage, .. } = ranked;
        let verdict = judge(act, pod, usage, ending, policy, now);
        if verdict == Verdict::Ending {
            coming = coming.saturating_add(usage.unwrap_or(0));
            asked |=
                ending.is_some_and(|ending| ending.evicted_for == Some(act.signal.condition()));
        }
        let stats = stats.filter(|_| act.resource() == Resource::Memory);
        let swap = stats.and_then(|stats| stats.swap);
        let zswap = stats.and_then(|stats| stats.zswap);
        let request = ranked.request(act.signal);
        considered.push(Considered { pod, usage, swap, zswap, request, verdict });
    }
    let waits = asked || coming >= act.deficit;
    let first = considered.iter_mut().find(|c| c.verdict == Verdict::NotNeeded).filter(|_| !waits);
    let victim = first.map(|first| {
        first.verdict = Verdict::Chosen;
        first.pod
    });
    Choice { victim, waits, considered }
}

/// Whether to wait for what `ending` frees.
pub(crate) fn comes_in_time(act: &Act, ending: &Ending, now: Instant) -> bool {
    let soon = match act.resource() {
        Resource::Memory | Resource::Pids => SOON,
        Resource::EphemeralStorage | Resource::Inodes => SOON_ON_DISK,
    };
    ending.due > now && (!act.hard || ending.due.saturating_duration_since(now) <= soon)
}

fn judge(
    act: &Act,
    pod: &Pod,
    usage: Option<i64>,
    ending: Option<Ending>,
    policy: &Policy,
    now: Instant,
) -> Verdict {
    match ending {
        Some(ending) if comes_in_time(act, &ending, now) => return Verdict::Ending,
        Some(ending) if ending.hurried || !act.hard => return Verdict::Stuck,
        _ => {}
    }
    if policy.spares(pod) {
        Verdict::Critical
    } else if usage.is_none() {
        Verdict::NotMeasured
    } else {
        Verdict::NotNeeded
    }
}
