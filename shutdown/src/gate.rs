//! Whether new pods may start.

use std::sync::Arc;

use tokio::sync::watch;
use winddown_shared::{AdmitHandler, Others, Pod, Rejection};

/// Shut while the node goes down. Cheap to clone and to ask; all clones are one gate.
///
/// Asked first of all admission checks, so that a pod arriving during a shutdown cannot preempt
/// others before it is refused.
#[derive(Clone, Debug, Default)]
pub struct AdmissionGate(Arc<watch::Sender<bool>>);

impl AdmissionGate {
    /// An open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a pod in, critical and static ones like any other.
    ///
    /// # Errors
    /// The node is shutting down; the reason and message are the kubelet's. It passes: a shutdown
    /// that is called off lets the pod in.
    pub fn check(&self) -> Result<(), Rejection> {
        if self.is_shut() {
            return Err(Rejection {
                reason: "NodeShutdown".into(),
                message: "Pod was rejected as the node is shutting down.".into(),
                passing: true,
            });
        }
        Ok(())
    }

    /// Whether pods are refused.
    pub fn is_shut(&self) -> bool {
        *self.0.borrow()
    }

    /// True whenever the gate is shut, and every change of it.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Refuses pods from now on.
    pub fn shut(&self) {
        self.0.send_if_modified(|shut| !std::mem::replace(shut, true));
    }

    /// Lets pods in again.
    pub fn open(&self) {
        self.0.send_if_modified(|shut| std::mem::replace(shut, false));
    }
}

impl AdmitHandler for AdmissionGate {
    fn admit(&self, _pod: &Pod, _others: &Others) -> Result<(), Rejection> {
        self.check()
    }
}
