//! Admission of pods to this node: a chain of handlers, of which the first refusal wins.

use std::sync::Arc;

use crate::Pod;

mod affinity;
mod failure;
pub(crate) mod gate;
mod handler;
mod node_fit;
mod node_view;
mod other_pods;
mod platform;
mod ports;
mod preemption;
mod sysctls;
mod taints;
#[cfg(test)]
mod tests;
pub(crate) mod victim_lock;

pub use failure::{AdmissionFailure, FitFailures};
pub use handler::{NodeFit, NodeSource};
pub use node_fit::{NodeUse, fit_failures};
pub use node_view::{Allocatable, NodeView};
pub(crate) use other_pods::OccupiedPlaces;
pub use other_pods::OtherPods;
pub use platform::platform_fits;
pub use ports::HostPorts;
pub use preemption::{AdmissionFailureHandler, PreemptionOutcome, Victim, VictimPlan};
pub use sysctls::sysctl_namespace;

/// One admission check for a new pod. Must return at once, and terminate no pod: that waits for it. A panic refuses its pod.
pub trait AdmitHandler: Send + Sync + 'static {
    /// Admits the pod, or refuses it with a reason.
    ///
    /// `others` are the pods that occupy a place on the node. The list is read lazily, so a handler
    /// that does not use it does not pay for it.
    ///
    /// # Errors
    /// The reason and message for the pod's status.
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection>;

    /// The same check for a caller that can let the pod wait while others are preempted for it. Only decides: nothing
    /// is terminated here. The default suits a handler that never lets a pod wait.
    fn decide(&self, pod: &Pod, others: &OtherPods) -> Verdict {
        match self.admit(pod, others) {
            Ok(()) => Verdict::Admitted,
            Err(rejection) => Verdict::Refused(rejection),
        }
    }
}

impl AdmitHandler for Arc<dyn AdmitHandler> {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        (**self).admit(pod, others)
    }

    fn decide(&self, pod: &Pod, others: &OtherPods) -> Verdict {
        (**self).decide(pod, others)
    }
}

/// The result of admission.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may start.
    Admitted,
    /// Not yet: it fits when these pods have terminated. Admission is repeated before it starts.
    Waiting(VictimPlan),
    /// It may not start.
    Refused(Rejection),
}

/// The refusal of a pod.
///
/// ```
/// use winddown_shared::Rejection;
///
/// let refused = Rejection::new("Closed", "The node is closed until noon.").retryable(true);
/// assert_eq!(refused.to_string(), "Closed: The node is closed until noon.");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
#[non_exhaustive]
pub struct Rejection {
    /// `status.reason`, for example `NodeShutdown`.
    pub reason: Arc<str>,
    /// A message for people. The status has it after a [prefix](Self::status_message).
    pub message: Arc<str>,
    /// Whether the unchanged pod may be admitted on this node later. Static pods are tried again when another pod has
    /// left the node, with growing delays, and every five minutes; all pods are when admission opens again, and when a
    /// plug-in calls [`NodeHandle::retry_rejected`](crate::NodeHandle::retry_rejected). For a pod from an API server,
    /// or another source that says so, a refusal is final.
    pub retryable: bool,
}

impl Rejection {
    /// A refusal for good.
    pub fn new(reason: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), message: message.into(), retryable: false }
    }

    /// Sets [`retryable`](Self::retryable).
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        Self { retryable, ..self }
    }

    /// The message with the kubelet's prefix, as in the status. One that begins with these words says them once.
    pub fn status_message(&self) -> String {
        let prefix = "Pod was rejected";
        match self.message.starts_with(prefix) {
            true => self.message.to_string(),
            false => format!("{prefix}: {}", self.message),
        }
    }
}

/// Admission handlers, in the order in which they are called.
///
/// The intended order: whether the node is shutting down, whether it is under pressure, whether the
/// pod fits. The kubelet checks for the shutdown last, so that a critical pod that arrives during
/// one has others preempted for it and is refused after that.
#[derive(Default)]
pub struct Admission(Vec<Box<dyn AdmitHandler>>);

impl Admission {
    /// Adds a handler after the existing ones.
    #[must_use]
    pub fn then(mut self, handler: impl AdmitHandler) -> Self {
        self.0.push(Box::new(handler));
        self
    }

    /// Calls the handlers in order; the first refusal wins.
    ///
    /// # Errors
    /// The first refusal.
    pub fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        self.0.iter().try_for_each(|one| ask(pod, || one.admit(pod, others)).unwrap_or_else(Err))
    }

    /// Calls every handler; the first refusal wins. The pod waits only if no handler refuses it: no
    /// pod is preempted for one that cannot start.
    pub fn decide(&self, pod: &Pod, others: &OtherPods) -> Verdict {
        let mut so_far = Verdict::Admitted;
        for one in &self.0 {
            match (ask(pod, || one.decide(pod, others)).unwrap_or_else(Verdict::Refused), &so_far) {
                (refused @ Verdict::Refused(_), _) => return refused,
                (waiting @ Verdict::Waiting(_), Verdict::Admitted) => so_far = waiting,
                _ => {}
            }
        }
        so_far
    }
}

/// What a check says. The panic of one, which may be code of the embedder, would end one agent after the other.
fn ask<T>(pod: &Pod, check: impl FnOnce() -> T) -> Result<T, Rejection> {
    let has_bug = Rejection::new("UnexpectedAdmissionError", "A check has a bug: see the log");
    crate::event::contained(pod.pod_ref(), check).ok_or(has_bug.retryable(true))
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admission({} handlers)", self.0.len())
    }
}
