//! The kills that an earlier agent of this boot requested, and what their pods are owed.

use super::Intake;
use crate::{
    BootClock, EarlierKill, GateState, KillRequest, Owed, Pod, PodUid, PodUidMap, Runtime,
    UpdateKind,
};

/// The kills that have not been handed to the workers yet.
pub(super) struct EarlierKills {
    kills: PodUidMap<EarlierKill>,
    clock: BootClock,
}

// === impl EarlierKills ===

impl EarlierKills {
    pub(super) fn new(kills: PodUidMap<EarlierKill>, clock: BootClock) -> Self {
        Self { kills, clock }
    }

    pub(super) fn contains(&self, uid: &PodUid) -> bool {
        self.kills.contains_key(uid)
    }

    /// Whether the pod must not start, although nothing of it runs any more.
    pub(super) fn keep_out(&self, pod: &Pod) -> bool {
        self.kills.get(pod.uid()).is_some_and(|kill| kill.keeps_out(pod.is_static()))
    }

    /// Removes the kill of a pod and returns the request, with what is left of the grace period now.
    pub(super) fn take(&mut self, uid: &PodUid) -> Option<KillRequest> {
        Some(self.kills.remove(uid)?.request_at(self.clock.now()))
    }
}

// === impl Intake ===

impl<R: Runtime> Intake<R> {
    /// Takes up the kill that an earlier agent requested of this pod. Returns whether there is one.
    pub(super) fn resume_kill(&mut self, pod: &Pod) -> bool {
        let Some(request) = self.earlier_kills.take(pod.uid()) else { return false };
        // What cannot be carried out any more would be tried for ever.
        if self.runtime.refuses_stop(pod.uid(), request.reason).is_some() {
            return false;
        }
        self.workers.resume_kill(pod.clone(), &request);
        let comes_back = pod.is_static() || request.restarts_on_node();
        match request.reason.owes() {
            // The node may have been reopened before this agent knew what runs. If not, `reopen` starts the pod.
            Owed::Reopening if comes_back && !self.is_kept(pod.uid()) => {
                if *self.gate.borrow() == GateState::Open {
                    self.workers.update(UpdateKind::Create, pod.clone(), None);
                }
            }
            // It is wanted again.
            Owed::Source => self.workers.update(UpdateKind::Create, pod.clone(), None),
            Owed::Room if pod.is_static() => self.rejected_static.note(pod, true),
            // The workers start the pod again, the controller that terminated it does, or it stays terminated.
            Owed::Restart | Owed::Relief | Owed::Nothing | Owed::Reopening | Owed::Room => {}
        }
        true
    }
}
