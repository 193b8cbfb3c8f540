//! Pods that start after others, or once the node knows whether it takes pods.

use super::{AdmissionState, Intake};
use crate::{GateState, Pod, Runtime, WAITING_FOR_TURN};

impl<R: Runtime> Intake<R> {
    /// The state of a pod while the node does not know whether it takes pods; `None` once it knows.
    pub(super) fn wait_for_decision(&self, pod: &Pod) -> Option<AdmissionState> {
        let GateState::Undecided { why } = *self.opening.gate.borrow() else { return None };
        self.say_pending(pod, WAITING_FOR_TURN, why);
        Some(AdmissionState::WaitingForTurn)
    }

    /// The state of a new pod whose turn has not come; `None` if it may start.
    pub(super) fn wait_for_turn(&self, pod: &Pod) -> Option<AdmissionState> {
        let waits_for = self.opening.turns.borrow().waits_for(pod)?;
        self.say_pending(pod, WAITING_FOR_TURN, &waits_for);
        Some(AdmissionState::WaitingForTurn)
    }

    /// Handles a new turn: all pods that waited count as new again.
    pub(super) fn next_turn(&mut self) {
        self.opening.turns.mark_unchanged();
        self.end_wait();
    }

    /// Makes all pods that waited count as new again.
    pub(super) fn end_wait(&mut self) {
        let turn = self.opening.turns.borrow().clone();
        self.desired.retain(|uid, desired| {
            let waited = matches!(desired.state, AdmissionState::WaitingForTurn);
            if waited && turn.waits_for(&desired.pod).is_none() {
                // The status of the wait must not stay.
                self.statuses.remove(uid);
            }
            !waited
        });
    }
}
