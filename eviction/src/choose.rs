//! Whom to end.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use winddown_shared::{Pod, PodStats};

use crate::condition::Condition;
use crate::decide::Act;
use crate::policy::Policy;
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
    /// It is ending already.
    pub ending: Option<Ending>,
}

/// How far a pod's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When it should be gone.
    pub due: Instant,
    /// It was asked to end within a second: there is nothing to hurry.
    pub hurried: bool,
    /// It was ended because of such a shortage.
    pub evicted_for: Option<Condition>,
}

/// Who is ended, and who was not and why.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// Who is ended; none: nobody can be, or what is ending already is waited for.
    pub victim: Option<&'a Pod>,
    /// Pods that are ending give back enough, or were ended for this shortage.
    pub waits: bool,
    /// All pods in the order in which they would be ended.
    pub considered: Vec<Considered<'a>>,
}

/// One pod in the ranking.
#[derive(Clone, Copy, Debug)]
pub struct Considered<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it uses: bytes, inodes or processes.
    pub usage: Option<i64>,
    /// What it may use without being among the first.
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
    /// It comes later: one pod at a time.
    NotNeeded,
    /// The node cannot do without it.
    Critical,
    /// It was not measured: nothing is known against it.
    NotMeasured,
    /// It is ending, and what it uses comes back.
    Ending,
    /// It should have ended and has not.
    Stuck,
}

/// How long what is ending is waited for when memory or tasks have to come back at once.
const SOON: Duration = Duration::from_secs(4);
/// The same for disks, where a pod's files go after it has ended.
const SOON_ON_DISK: Duration = Duration::from_secs(40);

/// Chooses the pod to end.
///
/// One at a time: while a pod that was ended for the same shortage is on its way, nobody else is
/// chosen. Pods that are ending for other reasons are waited for when what they use is enough. With a
/// hard threshold neither holds for a pod that takes long: that one is a candidate like others, and
/// its grace is cut. Pods without figures are passed over; so are pods that the policy spares.
#[must_use]
pub fn choose<'a>(
    act: &Act,
    candidates: &[Candidate<'a>],
    policy: &Policy,
    now: Instant,
) -> Choice<'a> {
    let layout = policy.layout();
    let mut ranked: Vec<(Ranked<'a>, Option<Ending>)> = candidates
        .iter()
        .map(|&Candidate { pod, stats, ending }| {
            let usage = stats.and_then(|stats| measured(act.signal, pod, stats, layout));
            (Ranked { pod, usage }, ending)
        })
        .collect();
    rank_by(act.signal, &mut ranked, |(ranked, _)| *ranked);
    let mut coming = 0_i64;
    let mut asked = false;
    let mut considered: Vec<Considered<'a>> = Vec::with_capacity(ranked.len());
    for (ranked, ending) in ranked {
        let Ranked { pod, usage } = ranked;
        let verdict = judge(act, pod, usage, ending, policy, now);
        if verdict == Verdict::Ending {
            coming = coming.saturating_add(usage.unwrap_or(0));
            asked |=
                ending.is_some_and(|ending| ending.evicted_for == Some(act.signal.condition()));
        }
        considered.push(Considered { pod, usage, request: ranked.request(act.signal), verdict });
    }
    let waits = asked || coming >= act.deficit;
    let first = considered.iter_mut().find(|c| c.verdict == Verdict::NotNeeded).filter(|_| !waits);
    let victim = first.map(|first| {
        first.verdict = Verdict::Chosen;
        first.pod
    });
    Choice { victim, waits, considered }
}

/// Whether what `ending` gives back is to be waited for.
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
