//! What is written to the Node object, and when.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::writer::{Next, Writer};
use super::{Core, NodeScope};
use crate::node::conditions;
use crate::node::events::NodeEvents;
use crate::node::pulse::Pulse;

impl<E: NodeEvents> Core<E> {
    /// Brings the Node object to what it has to be, and keeps it so, for ever.
    pub(super) async fn keep_status(&self, mut pulse: Pulse) {
        let mut answers = self.answers.clone();
        // The first answer decides whether the node begins as ready; it comes within the timeout.
        let _ = answers.wait_for(|answer| !answer.is_waiting()).await;
        let mut wishes = self.wishes.clone();
        let mut facts = self.facts.clone();
        let mut nodes = self.server.subscribe();
        let mut writer = Writer::new(self);
        loop {
            if is_new(&wishes) || is_new(&facts) || is_new(&answers) {
                writer.inputs_changed();
            }
            wishes.mark_unchanged();
            facts.mark_unchanged();
            answers.mark_unchanged();
            nodes.mark_unchanged();
            let urgent = wishes.borrow().urgent;
            let mut interrupt = wishes.clone();
            let next = tokio::select! {
                biased;
                // What was under way may be done or not; the next round looks at it again.
                Ok(_) = interrupt.wait_for(|wishes| wishes.urgent != urgent) => Next::Again,
                next = writer.round() => next,
            };
            let wake = match next {
                Next::Again => continue,
                Next::At(at) => Some(at),
                Next::Idle => None,
            };
            tokio::select! {
                Ok(()) = wishes.changed() => writer.inputs_changed(),
                Ok(()) = facts.changed() => writer.inputs_changed(),
                Ok(()) = answers.changed() => writer.inputs_changed(),
                Ok(()) = nodes.changed() => {}
                () = pulse.next() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// The conditions that the node has to have, in the order in which they are shown.
    pub(super) fn wanted(&self, server: &[NodeCondition]) -> Vec<NodeCondition> {
        if self.settings.scope == NodeScope::Lifecycle {
            return conditions::lifecycle(&self.health(), server);
        }
        let mut wanted = conditions::wanted(&self.health(), server);
        let facts = self.facts.borrow();
        let more = facts.conditions.iter();
        let more: Vec<_> =
            more.filter(|one| conditions::find(&wanted, &one.type_).is_none()).cloned().collect();
        wanted.extend(more);
        wanted
    }
}

/// The conditions of a Node object.
pub(super) fn conditions_of(node: &Node) -> &[NodeCondition] {
    let status = node.status.as_ref();
    status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

fn is_new<T>(receiver: &watch::Receiver<T>) -> bool {
    receiver.has_changed().unwrap_or(false)
}
