//! The controller's control over the admission gate and the pods' readiness.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use winddown_shared::{EarlierKill, GateReason, PodUidMap};

use super::signals::{ShutdownSignals, SignalState};
use super::{ResumeDecision, ShutdownController, Stage};
use crate::EndingPods;
use crate::{RunPhase, RunRecord};

/// The reasons for which the controller closes the gate. What it tells pods, it tells as a shutdown.
const REASONS: [GateReason; 3] = [GateReason::Shutdown, GateReason::UnitStop, GateReason::Notice];

/// How long pods wait for the login manager's state.
const FIRST_WORD: Duration = Duration::from_secs(2);

impl<K: EndingPods> ShutdownController<K> {
    /// Takes over from an earlier agent, before the intake starts: returns what
    /// [`with_earlier_kills`](winddown_shared::Intake::with_earlier_kills) takes. Waits for the login manager's state, two
    /// seconds at most: a silent one must not keep the node without pods.
    ///
    /// If the node goes down, or an earlier agent began a run, new pods wait until [`run`](Self::run) has decided what
    /// becomes of them: this and [`new`](Self::new) add [`GateReason::Startup`] to the gate, and only `run` may lift
    /// it. Call `run` when the intake has made its first pass, so that the pods are known.
    pub async fn take_over(&self) -> PodUidMap<EarlierKill> {
        let mut said = self.parts.inhibitor.state();
        let said = said.wait_for(|login| login.preparing || login.lock.is_known());
        // Without a word, what is known so far counts.
        let _ = timeout(FIRST_WORD, said).await;
        self.hold_undecided();
        let Some(run) = self.carried() else { return PodUidMap::default() };
        let (mut signals, started) = (self.signals(), self.start_of(run));
        signals.restore_notice(run, started);
        self.ask_machine(run, started, &mut signals).await;
        let decision = self.resume_decision(run, &signals.current());
        let called_off = matches!(decision, ResumeDecision::Drop);
        run.asked(self.parts.boot_clock.now(), called_off).collect()
    }

    /// Lets new pods wait if it is to be decided what becomes of them.
    pub(super) fn hold_undecided(&self) {
        if self.carried().is_some() || self.signals().current().ends_the_node() {
            self.parts.gate.shut(GateReason::Startup);
        }
    }

    /// The run that an earlier agent left.
    fn carried(&self) -> Option<&RunRecord> {
        self.parts.carried.as_ref().filter(|run| run.phase != RunPhase::Cancelled)
    }

    /// Closes the gate for the shutdown or the notice that is in force.
    fn hold_admission(&self) {
        if self.parts.policy.borrow().is_enabled() {
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
