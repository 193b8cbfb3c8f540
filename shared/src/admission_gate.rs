//! Whether new pods may start.

use std::sync::Arc;

use crate::{AdmitHandler, GateReason, GateReasons, Others, Pod, Rejection};
use tokio::sync::watch;

/// A gate for new pods, shut while there is any reason: a shutdown, a notice, a drain. Cheap to
/// clone and to check; all clones are one gate.
///
/// Checked before all other admission handlers, so that a pod that arrives during a shutdown cannot
/// preempt others before it is refused.
#[derive(Clone, Debug, Default)]
pub struct AdmissionGate(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    reasons: watch::Sender<GateReasons>,
    /// Whether there is a reason. Changed together with `reasons`.
    shut: watch::Sender<bool>,
}

impl AdmissionGate {
    /// An open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits a pod; critical and static pods are treated like any other.
    ///
    /// # Errors
    /// The gate is shut. Whatever the reason, the rejection is the one that the kubelet uses during
    /// a shutdown. It is retryable: the pod is admitted when the last reason is removed.
    pub fn check(&self) -> Result<(), Rejection> {
        if self.is_shut() {
            return Err(Rejection {
                reason: "NodeShutdown".into(),
                message: "Pod was rejected as the node is shutting down.".into(),
                retryable: true,
            });
        }
        Ok(())
    }

    /// Whether pods are refused.
    pub fn is_shut(&self) -> bool {
        !self.reasons().is_empty()
    }

    /// The reasons that keep the gate shut; empty while it is open.
    pub fn reasons(&self) -> GateReasons {
        *self.0.reasons.borrow()
    }

    /// A receiver of the reasons that keep the gate shut.
    pub fn changes(&self) -> watch::Receiver<GateReasons> {
        self.0.reasons.subscribe()
    }

    /// A receiver of whether pods are refused, for
    /// [`Intake::with_admission_closed`](crate::Intake::with_admission_closed).
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.0.shut.subscribe()
    }

    /// Adds a reason to refuse pods. The same reason twice counts once.
    pub fn shut(&self, reason: GateReason) {
        self.set(reason, true);
    }

    /// Removes a reason: pods are admitted again if it was the last one.
    pub fn lift(&self, reason: GateReason) {
        self.set(reason, false);
    }

    /// [Shuts](Self::shut) (`true`) or [lifts](Self::lift) (`false`).
    pub fn set(&self, reason: GateReason, holds: bool) {
        self.0.reasons.send_if_modified(|reasons| {
            let changed = reasons.set(reason, holds);
            let shut = !reasons.is_empty();
            self.0.shut.send_if_modified(|now| std::mem::replace(now, shut) != shut);
            changed
        });
    }
}

impl AdmitHandler for AdmissionGate {
    fn admit(&self, _pod: &Pod, _others: &Others) -> Result<(), Rejection> {
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_shut_for_two_reasons_opens_with_the_last_one_and_says_the_same_all_along() {
        let gate = AdmissionGate::new();
        let words = "Pod was rejected as the node is shutting down.";
        let closed = gate.closed();
        assert!(gate.check().is_ok());
        gate.shut(GateReason::Drain);
        assert!(*closed.borrow());
        let drained = gate.check().unwrap_err();
        assert_eq!((&*drained.reason, &*drained.message), ("NodeShutdown", words));
        gate.shut(GateReason::Shutdown);
        gate.lift(GateReason::Shutdown);
        assert_eq!(gate.check(), Err(drained));
        assert!(*closed.borrow());
        gate.lift(GateReason::Drain);
        assert!(gate.check().is_ok() && !*closed.borrow());
    }

    #[test]
    fn a_reason_that_holds_already_is_no_change() {
        let gate = AdmissionGate::new();
        gate.shut(GateReason::Notice);
        let changes = gate.changes();
        gate.shut(GateReason::Notice);
        gate.lift(GateReason::Drain);
        assert!(!changes.has_changed().unwrap());
    }
}
