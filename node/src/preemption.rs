//! Preemption as a plug-in: chooses the victims for a critical pod that does not fit. With all of `winddown-preemption`.

mod simulation;

use std::sync::Arc;

use tokio::sync::watch;
// The rest of what an agent needs for it.
pub use winddown_preemption::*;
use winddown_shared::{
    AdmissionFailureHandler, FitFailures, NodeView, Pod, PreemptionOutcome, Runtime,
};

use crate::plugin::{NodePlugin, PluginRegistry};
use simulation::Rooms;

/// Ends pods to make room for a critical one that does not fit on the node's [`Machine`](crate::Machine).
#[derive(Debug)]
pub struct Preemption(watch::Receiver<Strategy>);

impl Preemption {
    /// Chooses victims by `strategy`.
    pub fn new(strategy: Strategy) -> Self {
        Self(watch::Sender::new(strategy).subscribe())
    }

    /// Follows a strategy that can change.
    #[must_use]
    pub fn following(self, strategy: watch::Receiver<Strategy>) -> Self {
        Self(strategy)
    }
}

impl<R: Runtime> NodePlugin<R> for Preemption {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        node.core.recorders.metrics.of_preemption();
        let rooms = Rooms { core: Arc::clone(&node.core), strategy: self.0.clone() };
        node.contributions.answers.preemption = Some(Arc::new(rooms));
        node.contributions.preemption_handler = Some(Arc::new(*self));
    }
}

impl AdmissionFailureHandler for Preemption {
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        node: &NodeView,
        others: &[Pod],
    ) -> PreemptionOutcome {
        let strategy = *self.0.borrow();
        winddown_preemption::PreemptionHandler::new(strategy)
            .handle_admission_failure(pod, failures, node, others)
    }
}
