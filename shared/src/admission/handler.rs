//! The handler that checks whether a pod fits.

use std::sync::Arc;

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

type KeptRoom = dyn Fn(&Pod) -> Vec<Pod> + Send + Sync;

/// Admits pods that fit on the node. Refuses others with the kubelet's reason and message for the first failure.
#[derive(Clone)]
pub struct NodeFit<N> {
    node: N,
    room: Option<Arc<dyn AdmissionFailureHandler>>,
    beside: Option<Arc<KeptRoom>>,
}

// === impl NodeSource ===

/// A node that does not change.
impl NodeSource for Arc<NodeView> {
    fn node(&self) -> Option<Arc<NodeView>> {
        Some(self.clone())
    }
}

// === impl NodeFit ===

impl<N: NodeSource> NodeFit<N> {
    /// Checks against the node from `node`, without preemption.
    pub fn new(node: N) -> Self {
        Self { node, room: None, beside: None }
    }

    /// Adds preemption: `room` is called for pods that do not fit.
    #[must_use]
    pub fn with_preemption(self, room: Arc<dyn AdmissionFailureHandler>) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Has a pod fit beside the pods, too, that `others` returns for it: they have a place, and are not on the node yet.
    #[must_use]
    pub fn beside(self, others: impl Fn(&Pod) -> Vec<Pod> + Send + Sync + 'static) -> Self {
        Self { beside: Some(Arc::new(others)), ..self }
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
        let mut used = others.used_without(pod, &node);
        let beside = self.beside.iter().flat_map(|beside| beside(pod));
        beside.for_each(|other| used.add(&other));
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
