//! Static pods that are away although they are wanted: refused, or ended for a critical pod.
//!
//! There is no controller behind a manifest that would make such a pod anew, here or elsewhere. So it
//! is asked about again, by the rules for any new pod, when something has changed: another pod has
//! left the node, or the node itself is another. Between two times lies a delay of its own that
//! doubles up to five minutes ([`ReturnDelays`]); a change of the node itself ends it. In case a
//! change was not told of, it is asked every five minutes all the same.
//!
//! Pods do not end each other in circles: an ordinary pod ends no other, a critical one only pods that
//! it may preempt, and none of those may preempt it.

use std::time::Duration;

use tokio::time::Instant;

use super::pending_preemption::importance;
use super::{Intake, ReturnDelays, Standing};
use crate::{Others, Pod, PodSyncer, PodUid, PodUidMap, PodWorkers, Runtime, UpdateKind, Verdict};

/// The pods that are away and what they wait for.
#[derive(Default)]
pub(super) struct RejectedStatic {
    pods: PodUidMap<Wait>,
    delays: ReturnDelays,
    /// How often a pod has left the node, or the node has become another.
    changes: u64,
    /// Admission is closed: no pod is tried again.
    is_shut: bool,
}

struct Wait {
    /// Not before this, also if something has changed.
    not_before: Instant,
    /// By then, also if nothing has.
    at_last: Instant,
    /// The changes there had been when it was asked.
    seen: u64,
    /// A pod that leaves makes room for it. Otherwise the node would have to be another.
    retryable: bool,
}

// === impl RejectedStatic ===

impl RejectedStatic {
    /// A pod was refused or is ended for another one.
    pub(super) fn note(&mut self, pod: &Pod, retryable: bool) {
        let now = Instant::now();
        let wait = self.delays.next(pod.full_name(), now);
        self.pods.insert(
            pod.uid().clone(),
            Wait {
                not_before: now + wait,
                at_last: now + ReturnDelays::MOST,
                seen: self.changes,
                retryable,
            },
        );
    }

    /// The pod is not away any more, or not wanted.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Admission is closed, or open again.
    pub(super) fn shut(&mut self, is_shut: bool) {
        self.is_shut = is_shut;
    }

    /// The node has changed: a pod that is away is asked for at once.
    pub(super) fn node_changed(&mut self) {
        let now = Instant::now();
        for wait in self.pods.values_mut() {
            (wait.not_before, wait.at_last, wait.retryable) = (now, now, true);
        }
    }

    /// Resolves when a pod is to be asked. Cancel-safe. Never, while no pod is rejected.
    pub(super) async fn may_return<S: PodSyncer>(&mut self, workers: &PodWorkers<S>) {
        if self.is_shut || self.pods.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            let next = self.pods.values().filter_map(|wait| wait.next(self.changes)).min();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                () = workers.place_left() => self.changes += 1,
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<PodUid> {
        if self.is_shut {
            return Vec::new();
        }
        let is_due = |wait: &Wait| wait.next(self.changes).is_some_and(|at| at <= now);
        let due = self.pods.iter().filter(|(_, wait)| is_due(wait));
        due.map(|(uid, _)| uid.clone()).collect()
    }

    /// It cannot be asked before something has changed, and not for so long.
    fn put_off(&mut self, uid: &PodUid, time: Duration) {
        if let Some(wait) = self.pods.get_mut(uid) {
            wait.seen = self.changes;
            wait.at_last = Instant::now() + time;
        }
    }
}

impl Wait {
    fn next(&self, changes: u64) -> Option<Instant> {
        let at = if self.seen == changes { self.at_last } else { self.not_before };
        self.retryable.then_some(at)
    }
}

// === impl Intake ===

impl<R: Runtime> Intake<R> {
    /// Asks about the pods that are away and whose time has come, critical ones first.
    pub(super) fn ask_away(&mut self, others: &mut Others) {
        let mut pods = Vec::new();
        for uid in self.rejected_static.due(Instant::now()) {
            match self.desired.get(&uid) {
                Some(desired) => pods.push(desired.pod.clone()),
                None => self.rejected_static.forget(&uid),
            }
        }
        pods.sort_by_key(|pod| (importance(pod), pod.full_name().clone()));
        for pod in pods {
            match self.desired.get(pod.uid()).map(|desired| &desired.standing) {
                Some(Standing::Refused(_)) => self.ask_anew(&pod, false, others),
                Some(Standing::Admitted) => self.ask_ended(&pod, others),
                Some(Standing::PendingPreemption { .. } | Standing::WaitingForTurn) | None => {
                    self.rejected_static.forget(pod.uid());
                }
            }
        }
    }

    /// A pod that was ended for another one. What its status says of that stays until there is room.
    fn ask_ended(&mut self, pod: &Pod, others: &mut Others) {
        if !self.workers.is_termination_requested(pod.uid()) {
            // Something else has brought it back.
            return self.rejected_static.forget(pod.uid());
        }
        if !self.workers.is_known_terminated(pod.uid()) {
            // Its end will be reported like any other.
            return self.rejected_static.put_off(pod.uid(), ReturnDelays::MOST);
        }
        if matches!(self.admission.decide(pod, others), Verdict::Refused(_)) {
            return self.rejected_static.note(pod, true);
        }
        self.rejected_static.forget(pod.uid());
        others.reserve(pod);
        // Its worker makes way. It is asked again, like a new pod, when that is so.
        self.workers.update(UpdateKind::Create, pod.clone(), None);
    }
}
