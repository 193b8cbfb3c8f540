//! The handler that checks whether a pod fits.

use std::sync::Arc;

use tokio::sync::watch;

use super::failure::FitFailures;
use super::node_fit::fit_failures;
use super::node_view::NodeView;
use super::other_pods::OtherPods;
use super::platform::platform_fits;
use super::preemption::{AdmissionFailureHandler, PreemptionOutcome};
use super::{AdmitHandler, Rejection, Verdict};
use crate::Pod;

/// A source of the node's current state.
pub trait NodeSource: Send + Sync + 'static {
    /// The node as last read; `None` if it was never read. Must return at once.
    fn node(&self) -> Option<Arc<NodeView>>;
}

/// Admits pods that fit on the node. Refuses others with the kubelet's reason and message for the first failure.
#[derive(Clone)]
pub struct NodeFit<N> {
    node: N,
    room: Option<Arc<dyn AdmissionFailureHandler>>,
}

// === impl NodeSource ===

/// A node that does not change.
impl NodeSource for Arc<NodeView> {
    fn node(&self) -> Option<Arc<NodeView>> {
        Some(self.clone())
    }
}

/// A node that another component watches; `None` until it was read once.
impl NodeSource for watch::Receiver<Option<Arc<NodeView>>> {
    fn node(&self) -> Option<Arc<NodeView>> {
        self.borrow().clone()
    }
}

// === impl NodeFit ===

impl<N: NodeSource> NodeFit<N> {
    /// Checks against the node from `node`, without preemption.
    pub fn new(node: N) -> Self {
        Self { node, room: None }
    }

    /// Adds preemption: `room` is called for pods that do not fit.
    #[must_use]
    pub fn with_preemption(self, room: Arc<dyn AdmissionFailureHandler>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// The reasons why the pod does not fit, and the node that was checked.
    fn failures(
        &self,
        pod: &Pod,
        others: &OtherPods,
    ) -> Result<(FitFailures, Arc<NodeView>), Rejection> {
        let Some(node) = self.node.node() else {
            return Err(rejection("InvalidNodeInfo", "Kubelet cannot get node info.", true));
        };
        platform_fits(pod, &node)?;
        let used = others.used_without(pod, &node);
        Ok((fit_failures(pod, &node, &used), node))
    }

    fn judge(&self, pod: &Pod, others: &OtherPods) -> Result<Verdict, Rejection> {
        let (failures, node) = self.failures(pod, others)?;
        if failures.is_empty() {
            return Ok(Verdict::Admitted);
        }
        let room = match &self.room {
            Some(room) => {
                room.handle_admission_failure(pod, failures, &node, others.non_terminating())
            }
            None => PreemptionOutcome::Rejected(failures),
        };
        match room {
            PreemptionOutcome::Fits => Ok(Verdict::Admitted),
            PreemptionOutcome::Preempt(plan) => Ok(Verdict::Waiting(plan)),
            PreemptionOutcome::Rejected(failures) => {
                Err(failures.rejection().unwrap_or_else(|| {
                    rejection(
                        "UnknownReason",
                        "GeneralPredicates failed due to unknown reason, which is unexpected.",
                        false,
                    )
                }))
            }
            PreemptionOutcome::Failed(error) => {
                let message = format!(
                    "Unexpected error while attempting to recover from admission failure: {error}"
                );
                Err(rejection("UnexpectedAdmissionError", &message, true))
            }
        }
    }
}

impl<N: NodeSource> AdmitHandler for NodeFit<N> {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        let (failures, _) = self.failures(pod, others)?;
        failures.rejection().map_or(Ok(()), Err)
    }

    fn decide(&self, pod: &Pod, others: &OtherPods) -> Verdict {
        self.judge(pod, others).unwrap_or_else(Verdict::Refused)
    }
}

fn rejection(reason: &str, message: &str, retryable: bool) -> Rejection {
    Rejection { reason: reason.into(), message: message.into(), retryable }
}
