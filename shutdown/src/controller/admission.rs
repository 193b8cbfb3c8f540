//! The controller's control over the admission gate and the pods' readiness.

use std::pin::pin;

use winddown_shared::{GateReason, PodKiller};

use super::ShutdownController;
use super::signals::{ShutdownSignals, SignalState};
use crate::{RunPhase, Trigger};

impl<K: PodKiller> ShutdownController<K> {
    /// Closes the gate if a shutdown or a notice is in force, or if an earlier agent began a run.
    /// [`run`](Self::run) does so too, in its first step. After this call, callers that kept the gate closed
    /// may lift their reason.
    pub fn hold_admission(&self) {
        let carried = self.parts.carried.as_ref();
        if carried.is_some_and(|record| record.phase != RunPhase::Cancelled) {
            self.parts.gate.shut(self.own_reason());
        } else if self.parts.policy.borrow().is_enabled() {
            self.shut_for(
                &ShutdownSignals::new(self.parts.inhibitor.state(), self.parts.notices.clone())
                    .current(),
            );
        }
    }

    /// The reason for which the controller closes the gate, other than notices.
    pub(super) fn own_reason(&self) -> GateReason {
        match self.parts.trigger {
            Trigger::UnitStop => GateReason::UnitStop,
            _ => GateReason::Shutdown,
        }
    }

    /// Closes the gate for each reason that applies, and lifts the others.
    pub(super) fn shut_for(&self, signal: &SignalState) {
        let (login, notice) = (signal.login.preparing, signal.notice.is_some());
        let mut reasons = [(self.own_reason(), login), (GateReason::Notice, notice)];
        // Reasons that apply come first, so that the gate does not open in between.
        reasons.sort_by_key(|(_, holds)| !holds);
        for (reason, holds) in reasons {
            self.parts.gate.set(reason, holds);
        }
    }

    /// Like [`shut_for`](Self::shut_for), but only if the controller holds the gate already. It does not if
    /// graceful shutdown is disabled.
    pub(super) fn follow_reasons(&self, signal: &SignalState) {
        if self.holds_admission() {
            self.shut_for(signal);
        }
    }

    /// Whether the gate is closed for a reason of the controller.
    pub(super) fn holds_admission(&self) -> bool {
        let reasons = self.parts.gate.reasons();
        reasons.contains(self.own_reason()) || reasons.contains(GateReason::Notice)
    }

    /// Waits for `work` on a node that stays up. Pods are admitted in the meantime, until another shutdown
    /// or notice arrives.
    pub(super) async fn beside<T>(
        &self,
        signals: &ShutdownSignals,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = signals.clone().ends_again() => self.hold_admission(),
        }
        work.await
    }

    /// Lifts the controller's reasons from the gate and from readiness.
    pub(super) fn lift_all(&self) {
        self.parts.killer.lame_duck(self.own_reason(), false);
        self.parts.gate.lift(self.own_reason());
        self.parts.gate.lift(GateReason::Notice);
    }
}
