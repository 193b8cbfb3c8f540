//! The handler that asks whether a pod fits.

use std::sync::Arc;

use tokio::sync::watch;

use super::failure::FitFailures;
use super::node_fit::{NodeUse, fit_failures};
use super::node_view::NodeView;
use super::platform::platform_fits;
use super::{AdmitHandler, Rejection, Verdict};
use crate::Pod;

/// Where the node is read from.
pub trait NodeSource: Send + Sync + 'static {
    /// The node as last read. Must answer at once. `None`: it was never read.
    fn node(&self) -> Option<Arc<NodeView>>;

    /// The node as it is now, past every cache. `None`: it cannot be had now, or there is nothing
    /// newer than [`node`](Self::node).
    fn fresh(&self) -> Option<Arc<NodeView>> {
        None
    }
}

/// Makes room for pods that do not fit, by ending others.
pub trait MakeRoom: Send + Sync + 'static {
    /// What can be done for `pod`, which fits but for `failures`, among `others`.
    ///
    /// Must answer at once: what takes time is begun and answered with [`Room::Coming`].
    /// [`FitFailures::into_requirements`] says whether ending pods can help, and what they have to
    /// give back.
    fn make_room(&self, pod: &Pod, failures: FitFailures, node: &NodeView, others: &[Pod]) -> Room;
}

/// What became of the attempt to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room after all.
    Made,
    /// Pods are being ended. The fit is asked again before this one starts.
    Coming {
        /// What is waited for, for people.
        message: Arc<str>,
    },
    /// None: these are the failures to report.
    Refused(FitFailures),
    /// The attempt failed.
    Failed(String),
}

/// Ends no pod for another.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPreemption;

/// Lets in pods that fit on the node. Refuses with the kubelet's reasons and messages, the first of
/// them only.
#[derive(Clone, Debug)]
pub struct NodeFit<N, M = NoPreemption> {
    node: N,
    room: M,
}

/// What the kubelet says for failures of admission itself.
const UNEXPECTED: &str = "UnexpectedAdmissionError";

// === impl NoPreemption ===

impl MakeRoom for NoPreemption {
    fn make_room(
        &self,
        _pod: &Pod,
        failures: FitFailures,
        _node: &NodeView,
        _others: &[Pod],
    ) -> Room {
        Room::Refused(failures)
    }
}

// === impl NodeSource ===

/// A node that does not change.
impl NodeSource for Arc<NodeView> {
    fn node(&self) -> Option<Arc<NodeView>> {
        Some(self.clone())
    }
}

/// A node that somebody else follows; `None` until it was read once.
impl NodeSource for watch::Receiver<Option<Arc<NodeView>>> {
    fn node(&self) -> Option<Arc<NodeView>> {
        self.borrow().clone()
    }
}

// === impl NodeFit ===

impl<N: NodeSource> NodeFit<N> {
    /// Judges by the node that `node` knows, and ends no pod for another.
    pub fn new(node: N) -> Self {
        Self { node, room: NoPreemption }
    }
}

impl<N: NodeSource, M> NodeFit<N, M> {
    /// The same, with `room` asked about pods that do not fit.
    pub fn with_preemption<O: MakeRoom>(self, room: O) -> NodeFit<N, O> {
        NodeFit { node: self.node, room }
    }
}

impl<N: NodeSource, M: MakeRoom> NodeFit<N, M> {
    fn judge(&self, pod: &Pod, others: &dyn Fn() -> Vec<Pod>) -> Verdict {
        let Some(mut node) = self.node.node() else {
            return refuse("InvalidNodeInfo", "Kubelet cannot get node info.", true);
        };
        if let Err(rejection) = platform_fits(pod, &node) {
            return Verdict::Refused(rejection);
        }
        let others = others();
        let used = NodeUse::beside(pod, &others);
        let mut failures = fit_failures(pod, &node, &used);
        if failures.is_node_affinity_only()
            && let Some(fresh) = self.node.fresh()
        {
            failures = fit_failures(pod, &fresh, &used);
            node = fresh;
        }
        if failures.is_empty() {
            return Verdict::Admitted;
        }
        match self.room.make_room(pod, failures, &node, &others) {
            Room::Made => Verdict::Admitted,
            Room::Coming { message } => Verdict::Waiting { message },
            Room::Refused(failures) => match failures.rejection() {
                Some(rejection) => Verdict::Refused(rejection),
                None => refuse(
                    "UnknownReason",
                    "GeneralPredicates failed due to unknown reason, which is unexpected.",
                    false,
                ),
            },
            Room::Failed(error) => {
                let message = format!(
                    "Unexpected error while attempting to recover from admission failure: {error}"
                );
                refuse(UNEXPECTED, &message, true)
            }
        }
    }
}

impl<N: NodeSource, M: MakeRoom> AdmitHandler for NodeFit<N, M> {
    /// A pod that would have to wait is refused, passing, for a caller that cannot let it wait.
    fn admit(&self, pod: &Pod, others: &dyn Fn() -> Vec<Pod>) -> Result<(), Rejection> {
        match self.judge(pod, others) {
            Verdict::Admitted => Ok(()),
            Verdict::Waiting { message } => {
                Err(Rejection { reason: UNEXPECTED.into(), message, passing: true })
            }
            Verdict::Refused(rejection) => Err(rejection),
        }
    }

    fn decide(&self, pod: &Pod, others: &dyn Fn() -> Vec<Pod>) -> Verdict {
        self.judge(pod, others)
    }
}

fn refuse(reason: &str, message: &str, passing: bool) -> Verdict {
    Verdict::Refused(Rejection { reason: reason.into(), message: message.into(), passing })
}
