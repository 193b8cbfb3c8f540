//! Whether new pods may start.

use std::sync::Arc;

use crate::{AdmitHandler, GateReason, GateReasons, OtherPods, Pod, Rejection};
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
    /// What the reasons come to. Changed together with them.
    state: watch::Sender<GateState>,
}

/// Why pods wait while the agent starts.
const STARTING: &str = "the agent is starting, and does not know yet whether the node admits pods";

/// Whether a node admits pods, for [`Intake::with_gate`](crate::Intake::with_gate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateState {
    /// New pods are checked, and start if they pass.
    #[default]
    Open,
    /// The node does not know yet. New pods wait: a refusal would be final for a pod of an API server.
    Undecided {
        /// What is not known, for the message of their statuses.
        why: &'static str,
    },
    /// New pods are refused.
    Shut,
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

    /// Whether pods are admitted, refused, or have to wait until the agent knows: while it starts.
    pub fn state(&self) -> GateState {
        *self.0.state.borrow()
    }

    /// A receiver of [`state`](Self::state), for [`Intake::with_gate`](crate::Intake::with_gate).
    pub fn states(&self) -> watch::Receiver<GateState> {
        self.0.state.subscribe()
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
            let state = GateState::of(*reasons);
            self.0.state.send_if_modified(|now| std::mem::replace(now, state) != state);
            changed
        });
    }
}

impl GateState {
    fn of(reasons: GateReasons) -> Self {
        match reasons {
            reasons if reasons.is_empty() => Self::Open,
            reasons if reasons.contains(GateReason::Startup) => Self::Undecided { why: STARTING },
            _ => Self::Shut,
        }
    }
}

impl AdmitHandler for AdmissionGate {
    fn admit(&self, _pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
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
        assert!(gate.check().is_ok());
        gate.shut(GateReason::Drain);
        assert_eq!(gate.state(), GateState::Shut);
        let drained = gate.check().unwrap_err();
        assert_eq!((&*drained.reason, &*drained.message), ("NodeShutdown", words));
        gate.shut(GateReason::Shutdown);
        gate.lift(GateReason::Shutdown);
        assert_eq!(gate.check(), Err(drained));
        assert_eq!(gate.state(), GateState::Shut);
        gate.shut(GateReason::Startup);
        let undecided = GateState::Undecided { why: STARTING };
        assert_eq!(gate.state(), undecided, "what is not known yet refuses nobody");
        gate.lift(GateReason::Startup);
        gate.lift(GateReason::Drain);
        assert_eq!((gate.check(), gate.state()), (Ok(()), GateState::Open));
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
