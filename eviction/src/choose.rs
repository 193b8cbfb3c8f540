//! Chooses the pod to evict.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{Pod, PodStats};

use crate::conditions::Conditions;
use crate::decide::Shortage;
use crate::exemption::Exemption;
use crate::policy::{BEYOND_GRACE, HARD_GRACE, Policy};
use crate::rank::{Ranked, rank_by};
use crate::signal::FreedBy;
use crate::usage::{is_partial, measured};

#[cfg(test)]
mod tests;

/// A pod on the node.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its usage; none if it was not measured.
    pub stats: Option<&'a PodStats>,
    /// Whether no pod is ever measured here, so that it is evicted without figures.
    pub is_never_measured: bool,
    /// Whether the runtime would refuse to stop it.
    pub is_refused: bool,
    /// The state of its termination; none if it is not terminating.
    pub ending: Option<CandidateEnding>,
}

impl<'a> Candidate<'a> {
    /// A pod that is not terminating, and its usage; none if it was not measured.
    #[must_use]
    pub const fn new(pod: &'a Pod, stats: Option<&'a PodStats>) -> Self {
        Self { pod, stats, is_never_measured: false, is_refused: false, ending: None }
    }
}

/// The state of a pod's termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CandidateEnding {
    /// When it should be gone.
    pub due: Instant,
    /// Whether it was given at most one second, so that its grace period cannot be shortened further.
    pub has_minimal_grace: bool,
    /// The condition that it was evicted for: none if it is terminating for another reason, and all if an earlier agent
    /// evicted it.
    pub evicted_for: Conditions,
}

/// The victim, and why the other pods were not chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice<'a> {
    /// The victim; none if no pod qualifies, or while terminating pods are awaited.
    pub victim: Option<&'a Pod>,
    /// Whether no victim is needed yet: terminating pods free enough, or one was already evicted for this condition.
    pub waits: bool,
    /// All pods in eviction order.
    pub considered: Vec<Considered<'a>>,
}

/// One pod in the ranking.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Considered<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its usage of the short resource, in that one's unit; none if it was not measured.
    pub usage: Option<i64>,
    /// Whether it uses more than that, which could not be counted in time.
    pub is_partial: bool,
    /// Its swap usage in bytes; none if it was not measured, or if the short resource is not memory.
    pub swap: Option<u64>,
    /// The memory that its compressed pages (zswap) occupy, in bytes; none in the same cases.
    pub zswap: Option<u64>,
    /// Its request; pods that use more than their request are evicted first.
    pub request: i64,
    /// Whether it was chosen, and if not, why.
    pub verdict: CandidateVerdict,
}

/// Why a pod was chosen or passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CandidateVerdict {
    /// It is evicted.
    Chosen,
    /// It qualifies, but only one pod is evicted at a time.
    NotNeeded,
    /// The policy spares it.
    Critical,
    /// Its usage is unknown.
    NotMeasured,
    /// It is terminating and will free what it uses.
    Ending,
    /// It is terminating, and overdue or too slow.
    Stuck,
    /// The runtime would refuse to stop it.
    Refused,
}

// === impl CandidateVerdict ===

impl CandidateVerdict {
    /// The verdict as JSON writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::NotNeeded => "notNeeded",
            Self::Critical => "critical",
            Self::NotMeasured => "notMeasured",
            Self::Ending => "ending",
            Self::Stuck => "stuck",
            Self::Refused => "refused",
        }
    }
}

// === impl CandidateEnding ===

impl CandidateEnding {
    /// A termination that should be over at `due`, for another reason than an eviction, and whose grace period may be
    /// shortened.
    #[must_use]
    pub const fn new(due: Instant) -> Self {
        Self { due, has_minimal_grace: false, evicted_for: Conditions::NONE }
    }

    /// Whether the pod was evicted and is not overdue: it ends even if it still counts as staying, because a hook runs
    /// first.
    pub(crate) fn is_victim(&self, now: Instant) -> bool {
        !self.evicted_for.is_empty() && self.due > now
    }
}

/// How long to wait for terminating pods under memory or PID pressure.
const ENDING_TIMEOUT: Duration = HARD_GRACE.saturating_add(BEYOND_GRACE);
/// The same for disks, where a pod's files are removed after it has stopped.
const ENDING_TIMEOUT_ON_DISK: Duration = Duration::from_secs(40);

/// Chooses the pod to evict.
///
/// Evicts one pod at a time: while a pod that was chosen for the same condition is terminating, no other pod is
/// chosen. Pods that are terminating for other reasons are awaited if they free enough. For a hard threshold, a pod
/// that takes too long is a candidate again, with a shorter grace period. Pods that the policy spares are skipped, and so
/// are pods without figures, unless no pod is ever measured here.
#[must_use]
pub fn choose<'a>(
    shortage: &Shortage,
    candidates: &[Candidate<'a>],
    policy: &Policy,
    now: Instant,
) -> Choice<'a> {
    let mut ranked: Vec<(Ranked<'a>, &Candidate<'a>)> = candidates
        .iter()
        .map(|candidate| {
            let &Candidate { pod, stats, .. } = candidate;
            let usage = stats.and_then(|stats| measured(shortage.signal, pod, stats, policy));
            let is_partial =
                stats.is_some_and(|stats| is_partial(shortage.signal, pod, stats, policy.layout()));
            (Ranked { pod, usage, is_partial }, candidate)
        })
        .collect();
    rank_by(shortage.signal, &mut ranked, |(ranked, _)| *ranked);
    let mut coming = 0_i64;
    let mut asked = false;
    let mut considered: Vec<Considered<'a>> = Vec::with_capacity(ranked.len());
    for (ranked, candidate) in ranked {
        let (Ranked { pod, usage, is_partial }, &Candidate { stats, ending, .. }) =
            (ranked, candidate);
        let verdict = judge(shortage, candidate, usage, policy, now);
        if verdict == CandidateVerdict::Ending {
            coming = coming.saturating_add(usage.unwrap_or(0));
            asked |= ending
                .is_some_and(|ending| ending.evicted_for.contains(shortage.signal.condition()));
        }
        let stats = stats.filter(|_| shortage.resource().row().is_swapped_out);
        let swap = stats.and_then(|stats| stats.swap);
        let zswap = stats.and_then(|stats| stats.zswap);
        let request = ranked.request(shortage.signal);
        considered.push(Considered { pod, usage, is_partial, swap, zswap, request, verdict });
    }
    let waits = asked || coming >= shortage.deficit;
    let first =
        considered.iter_mut().find(|c| c.verdict == CandidateVerdict::NotNeeded).filter(|_| !waits);
    let victim = first.map(|first| {
        first.verdict = CandidateVerdict::Chosen;
        first.pod
    });
    Choice { victim, waits, considered }
}

/// Whether a terminating pod will be gone soon enough to wait for what it frees.
pub(crate) fn comes_in_time(shortage: &Shortage, ending: &CandidateEnding, now: Instant) -> bool {
    let soon = match shortage.resource().row().freed_by {
        FreedBy::Exit | FreedBy::Reaping => ENDING_TIMEOUT,
        FreedBy::FileRemoval => ENDING_TIMEOUT_ON_DISK,
    };
    // A pod whose hook runs first is due later, and cannot be hurried.
    let can_wait = !shortage.hard || ending.has_minimal_grace;
    ending.due > now && (can_wait || ending.due.saturating_duration_since(now) <= soon)
}

fn judge(
    shortage: &Shortage,
    candidate: &Candidate<'_>,
    usage: Option<i64>,
    policy: &Policy,
    now: Instant,
) -> CandidateVerdict {
    let &Candidate { pod, is_never_measured, is_refused, ending, .. } = candidate;
    match ending {
        Some(ending) if comes_in_time(shortage, &ending, now) => return CandidateVerdict::Ending,
        Some(ending) if ending.has_minimal_grace || !shortage.hard => {
            return CandidateVerdict::Stuck;
        }
        _ => {}
    }
    if policy.exempts(pod) {
        CandidateVerdict::Critical
    } else if is_refused {
        CandidateVerdict::Refused
    } else if usage.is_none() && !is_never_measured {
        CandidateVerdict::NotMeasured
    } else {
        CandidateVerdict::NotNeeded
    }
}

/// Why none of these pods is evicted, for the end of a log line: how many for which reason.
pub(crate) fn why_none(considered: &[Considered<'_>], policy: &Policy) -> String {
    let mut counts = BTreeMap::new();
    for one in considered {
        let because = match one.verdict {
            CandidateVerdict::Critical => {
                policy.exemption(one.pod).map_or("spared", Exemption::text)
            }
            CandidateVerdict::NotMeasured => "not measured yet",
            CandidateVerdict::Ending => "terminating",
            CandidateVerdict::Stuck => "terminating, and late",
            CandidateVerdict::Refused => "not stopped by the runtime",
            CandidateVerdict::Chosen | CandidateVerdict::NotNeeded => "not needed",
        };
        *counts.entry(because).or_insert(0_usize) += 1;
    }
    let counts = counts.into_iter().map(|(because, count)| format!("{count} {because}"));
    let counts = counts.collect::<Vec<_>>().join("; ");
    if counts.is_empty() { counts } else { format!(": {counts}") }
}
