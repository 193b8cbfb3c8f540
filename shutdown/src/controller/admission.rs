//! The controller's control over the admission gate and the pods' readiness.

use std::pin::pin;

use winddown_shared::GateReason;

use super::signals::{ShutdownSignals, SignalState};
use super::{ResumeDecision, ShutdownController, Stage};
use crate::EndingPods;
use crate::RunPhase;

/// The reasons for which the controller closes the gate. What it tells pods, it tells as a shutdown.
const REASONS: [GateReason; 3] = [GateReason::Shutdown, GateReason::UnitStop, GateReason::Notice];

impl<K: EndingPods> ShutdownController<K> {
    /// Closes the gate if a shutdown or a notice is in force. If an earlier agent began a run, it is undecided whether
    /// pods are admitted until [`run`](Self::run) has decided what to do with it: that adds [`GateReason::Startup`],
    /// also for callers who have added it, and lifts it with the first decision.
    pub fn hold_admission(&self) {
        let carried = self.parts.carried.as_ref();
        if carried.is_some_and(|record| record.phase != RunPhase::Cancelled) {
            self.parts.gate.shut(GateReason::Startup);
        } else if self.parts.policy.borrow().is_enabled() {
            self.shut_for(&self.signals().current());
        }
    }

    /// Closes the gate for each reason that applies, and lifts the others.
    pub(super) fn shut_for(&self, signal: &SignalState) {
        let mut reasons = REASONS.map(|reason| (reason, signal.closes_for(reason)));
        // Reasons that apply come first, so that the gate does not open in between.
        reasons.sort_by_key(|(_, holds)| !holds);
        for (reason, holds) in reasons {
            self.parts.gate.set(reason, holds);
        }
    }

    /// Ends the start of the agent: from here on pods are refused or admitted.
    pub(super) fn decide(&self, stage: &Stage, signal: &SignalState) {
        let takes_part = || self.parts.policy.borrow().is_enabled();
        if let Stage::Carried(record) = stage {
            match self.resume_decision(record, signal) {
                ResumeDecision::Undecided(_) => return,
                ResumeDecision::Resume => self.shut_for(signal),
                ResumeDecision::Drop => {}
            }
        } else if signal.ends_the_node() && takes_part() {
            self.shut_for(signal);
        }
        self.parts.gate.lift(GateReason::Startup);
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
        REASONS.into_iter().any(|reason| reasons.contains(reason))
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
        self.parts.killer.lame_duck(GateReason::Shutdown, false);
        REASONS.into_iter().for_each(|reason| self.parts.gate.lift(reason));
    }
}
