//! Who may run on this node: a chain of handlers, the first refusal wins.

use std::sync::Arc;

use crate::Pod;

mod affinity;
mod failure;
mod handler;
mod node_fit;
mod node_view;
mod others;
mod platform;
mod ports;
mod preemption;
mod sysctls;
mod taints;
#[cfg(test)]
mod tests;

pub use failure::{AdmissionFailure, FitFailures};
pub use handler::{NodeFit, NodeSource};
pub use node_fit::{NodeUse, fit_failures};
pub use node_view::{Allocatable, NodeView};
pub use others::Others;
pub(crate) use others::Places;
pub use platform::platform_fits;
pub use ports::HostPorts;
pub use preemption::{AdmissionFailureHandler, Room, Victim, VictimPlan};
pub use sysctls::sysctl_namespace;

/// One question a new pod is asked. Must answer at once.
pub trait AdmitHandler: Send + Sync + 'static {
    /// Lets the pod start now, or says why not.
    ///
    /// `others` are the pods that hold a place on the node; a handler that does not look at them
    /// does not pay for the list.
    ///
    /// # Errors
    /// The reason and message that go into the pod's status.
    fn admit(&self, pod: &Pod, others: &Others) -> Result<(), Rejection>;

    /// The same question for a caller that can let the pod wait while others end for it. Decides
    /// only: nothing is ended here. A handler that never lets one wait has nothing to add.
    fn decide(&self, pod: &Pod, others: &Others) -> Verdict {
        match self.admit(pod, others) {
            Ok(()) => Verdict::Admitted,
            Err(rejection) => Verdict::Refused(rejection),
        }
    }
}

impl AdmitHandler for Arc<dyn AdmitHandler> {
    fn admit(&self, pod: &Pod, others: &Others) -> Result<(), Rejection> {
        (**self).admit(pod, others)
    }

    fn decide(&self, pod: &Pod, others: &Others) -> Verdict {
        (**self).decide(pod, others)
    }
}

/// What becomes of a pod.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may start.
    Admitted,
    /// Not yet: it fits when these pods have ended. It is asked about again before it starts.
    Waiting(VictimPlan),
    /// It may not start.
    Refused(Rejection),
}

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    /// `status.reason`, for example `NodeShutdown`.
    pub reason: Arc<str>,
    /// For people. The status carries it behind [`Rejection::STATUS_PREFIX`].
    pub message: Arc<str>,
    /// Whether the same pod may be admitted later on this node without a change. Static pods are asked about again when
    /// another pod has left the node, with growing pauses, and every five minutes; all when admission opens again, and
    /// when a plug-in calls [`NodeHandle::ask_again`](crate::NodeHandle::ask_again). For a pod of an API server a
    /// refusal is the end.
    pub retryable: bool,
}

impl Rejection {
    /// What the kubelet puts before the message in a rejected pod's status.
    pub const STATUS_PREFIX: &'static str = "Pod was rejected: ";

    /// The message as the status carries it.
    pub fn status_message(&self) -> String {
        format!("{}{}", Self::STATUS_PREFIX, self.message)
    }
}

/// Handlers in the order in which they are asked.
///
/// The order that is meant: whether the node is shutting down, whether it is under pressure, whether
/// the pod fits. The kubelet asks about the shutdown last, so that a critical pod which arrives during
/// one has others ended for it and is refused after that.
#[derive(Default)]
pub struct Admission(Vec<Box<dyn AdmitHandler>>);

impl Admission {
    /// Adds a handler behind those there are.
    #[must_use]
    pub fn then(mut self, handler: impl AdmitHandler) -> Self {
        self.0.push(Box::new(handler));
        self
    }

    /// Asks every handler; the first refusal wins.
    ///
    /// # Errors
    /// The first refusal.
    pub fn admit(&self, pod: &Pod, others: &Others) -> Result<(), Rejection> {
        self.0.iter().try_for_each(|handler| handler.admit(pod, others))
    }

    /// Asks every handler; the first refusal wins. The pod waits only if no handler refuses it: no
    /// pod is ended for one that cannot start.
    pub fn decide(&self, pod: &Pod, others: &Others) -> Verdict {
        let mut decided = Verdict::Admitted;
        for handler in &self.0 {
            match (handler.decide(pod, others), &decided) {
                (refused @ Verdict::Refused(_), _) => return refused,
                (waiting @ Verdict::Waiting(_), Verdict::Admitted) => decided = waiting,
                _ => {}
            }
        }
        decided
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admission({} handlers)", self.0.len())
    }
}
