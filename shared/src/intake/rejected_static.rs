//! Static pods that are wanted but do not run: refused, or preempted by a critical pod.
//!
//! No controller behind a manifest would create such a pod again, here or elsewhere. So it is tried again, by the rules
//! for any new pod, when something has changed: another pod has left the node, or the node itself has changed. Between
//! two attempts lies a delay of its own that doubles up to five minutes ([`ReadmissionBackoff`]); a change of the node
//! itself ends it. In case a change was missed, the pod is tried every five minutes anyway.
//!
//! Pods cannot preempt each other in circles: an ordinary pod preempts none, and a critical one
//! only pods that it may preempt, none of which may preempt it.

use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::Instant;

use super::pending_preemption::importance;
use super::{AdmissionState, Intake, ReadmissionBackoff};
use crate::{
    OtherPods, Pod, PodSyncer, PodUid, PodUidMap, PodWorkers, Runtime, UpdateKind, Verdict,
};

/// The rejected pods and what they wait for.
#[derive(Default)]
pub(super) struct RejectedStatic {
    pods: PodUidMap<Wait>,
    delays: ReadmissionBackoff,
    /// The number of times that a pod has left the node or the node has changed.
    changes: u64,
    /// Whether admission is closed: no pod is tried again.
    is_shut: bool,
}

struct Wait {
    /// Earliest time of the next attempt, even if something has changed.
    not_before: Instant,
    /// Time of the next attempt if nothing changes.
    at_last: Instant,
    /// The number of changes at the last attempt.
    seen: u64,
    /// Whether a pod that leaves may make room for it. Otherwise the node would have to change.
    retryable: bool,
}

// === impl RejectedStatic ===

impl RejectedStatic {
    /// Adds a pod that was refused or is preempted.
    pub(super) fn note(&mut self, pod: &Pod, retryable: bool) {
        let now = Instant::now();
        let wait = self.delays.next_delay(pod.full_name(), now);
        self.pods.insert(
            pod.uid().clone(),
            Wait {
                not_before: now + wait,
                at_last: now + ReadmissionBackoff::MAX_DELAY,
                seen: self.changes,
                retryable,
            },
        );
    }

    /// Removes a pod that was started or is no longer wanted.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Records whether admission is closed.
    pub(super) fn shut(&mut self, is_shut: bool) {
        self.is_shut = is_shut;
    }

    /// Records that the node has changed: all rejected pods are tried at once.
    pub(super) fn node_changed(&mut self) {
        let now = Instant::now();
        for wait in self.pods.values_mut() {
            (wait.not_before, wait.at_last, wait.retryable) = (now, now, true);
        }
    }

    /// Resolves when a pod is to be tried again; never while no pod is rejected. Cancel-safe.
    pub(super) async fn may_return<S: PodSyncer>(&mut self, workers: &PodWorkers<S>) {
        if self.is_shut || self.pods.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            let next = self.pods.values().filter_map(|wait| wait.next(self.changes)).min();
            tokio::select! {
                Some(()) = OptionFuture::from(next.map(tokio::time::sleep_until)) => return,
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

    /// Postpones a pod that cannot be tried before something changes, for at most `time`.
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
    /// Tries the rejected pods that are due again, critical ones first.
    pub(super) fn retry_rejected(&mut self, others: &mut OtherPods) {
        let mut pods = Vec::new();
        for uid in self.rejected_static.due(Instant::now()) {
            match self.desired.get(&uid) {
                Some(desired) => pods.push(desired.pod.clone()),
                None => self.rejected_static.forget(&uid),
            }
        }
        pods.sort_by_key(|pod| (importance(pod), pod.full_name().clone()));
        for pod in pods {
            match self.desired.get(pod.uid()).map(|desired| &desired.state) {
                Some(AdmissionState::Refused(_)) => self.retry(&pod, false, others),
                Some(AdmissionState::Admitted) => self.retry_preempted(&pod, others),
                Some(AdmissionState::PendingPreemption { .. } | AdmissionState::WaitingForTurn)
                | None => {
                    self.rejected_static.forget(pod.uid());
                }
            }
        }
    }

    /// Tries a pod that was preempted. Its status stays as it is until there is room.
    fn retry_preempted(&mut self, pod: &Pod, others: &mut OtherPods) {
        if !self.workers.is_termination_requested(pod.uid()) {
            // Something else has brought the pod back.
            return self.rejected_static.forget(pod.uid());
        }
        if !self.workers.is_known_terminated(pod.uid()) {
            // Its termination will be reported as a change.
            return self.rejected_static.put_off(pod.uid(), ReadmissionBackoff::MAX_DELAY);
        }
        if matches!(self.admission.decide(pod, others), Verdict::Refused(_)) {
            return self.rejected_static.note(pod, true);
        }
        self.rejected_static.forget(pod.uid());
        others.reserve(pod);
        // Its worker makes way, and then the pod is admitted like a new one.
        self.workers.update(UpdateKind::Create, pod.clone(), None);
    }
}
