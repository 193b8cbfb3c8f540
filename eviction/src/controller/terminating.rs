//! The pods that are terminating, and those that would not: the loop and its view choose among the same pods.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{
    Grace, KillReason, Pod, PodKiller, PodStateProvider, PodUid, PodUidMap, instant_after,
};

use crate::choose::{Candidate, CandidateEnding};
use crate::conditions::Conditions;
use crate::policy::{BEYOND_GRACE, HARD_GRACE};
use crate::seams::PodFigures;

/// What became of requests to stop pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Terminating {
    /// The pods that were asked to stop.
    pub(super) endings: PodUidMap<CandidateEnding>,
}

impl Terminating {
    /// The pods that are still on the node, with their figures.
    pub(super) fn candidates<'a>(
        &mut self,
        killer: &(impl PodKiller + PodStateProvider),
        measured: &'a [Pod],
        figures: &'a PodFigures,
        now: Instant,
    ) -> Vec<Candidate<'a>> {
        let uids = |pods: Vec<Pod>| -> HashSet<PodUid> {
            pods.iter().map(|pod| pod.uid().clone()).collect()
        };
        let active = uids(killer.running().pods);
        let staying = uids(killer.non_terminating_pods());
        // A static pod that was overdue may be back, with the same UID.
        let is_ending = |uid: &PodUid, ending: &CandidateEnding| {
            !staying.contains(uid) || ending.is_victim(now)
        };
        self.endings.retain(|uid, ending| active.contains(uid) && is_ending(uid, ending));
        let here = measured.iter().enumerate().filter(|(_, pod)| active.contains(pod.uid()));
        let candidates = here.map(|(place, pod)| {
            let (uid, asked) = (pod.uid(), self.endings.contains_key(pod.uid()));
            // A victim whose hook still runs is staying, but counts as terminating.
            let ending = (asked || !staying.contains(uid))
                .then(|| *self.endings.entry(uid.clone()).or_insert_with(|| ending_of(pod, now)));
            let (stats, is_never_measured) = (figures.at(place), figures.is_never());
            let is_refused = killer.refuses_stop(uid, KillReason::Eviction).is_some();
            Candidate { pod, stats, is_never_measured, is_refused, ending }
        });
        candidates.collect()
    }
}

/// The state of a pod that another controller stops. Its grace period counts from when that was first observed.
fn ending_of(pod: &Pod, now: Instant) -> CandidateEnding {
    let deleted = pod.metadata.deletion_grace_period_seconds;
    let deleted = deleted.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let grace = deleted.or(pod.termination_grace_period()).unwrap_or(Grace::DEFAULT);
    CandidateEnding {
        due: instant_after(now, grace.max(HARD_GRACE)) + BEYOND_GRACE,
        has_minimal_grace: grace <= HARD_GRACE,
        evicted_for: Conditions::NONE,
    }
}
