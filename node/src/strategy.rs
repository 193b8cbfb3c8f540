//! How victims are chosen, as the configuration has it now.

use tokio::sync::watch;
use winddown_preemption::{Preemption, Strategy};
use winddown_shared::{AdmissionFailureHandler, FitFailures, NodeView, Pod, Room};

/// Chooses by the strategy in force.
#[derive(Debug)]
pub(super) struct CurrentStrategy(pub(super) watch::Receiver<Strategy>);

impl AdmissionFailureHandler for CurrentStrategy {
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        node: &NodeView,
        others: &[Pod],
    ) -> Room {
        let strategy = *self.0.borrow();
        Preemption::new(strategy).handle_admission_failure(pod, failures, node, others)
    }
}
