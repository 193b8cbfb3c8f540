//! How victims are chosen, as the configuration has it now.

use tokio::sync::watch;
use winddown_preemption::{Preemption, Strategy};
use winddown_shared::{FitFailures, MakeRoom, NodeView, Pod, Room};

/// Chooses by the strategy in force.
#[derive(Debug)]
pub(super) struct CurrentStrategy(pub(super) watch::Receiver<Strategy>);

impl MakeRoom for CurrentStrategy {
    fn make_room(&self, pod: &Pod, failures: FitFailures, node: &NodeView, others: &[Pod]) -> Room {
        let strategy = *self.0.borrow();
        Preemption::new(strategy).make_room(pod, failures, node, others)
    }
}
