//! Decides what to write to the Node object, and when.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Core;
use super::writer::{Next, NodeWriter};
use crate::node::ticker::Ticker;

impl Core {
    /// Waits for the first answer to a ping, which decides whether the node begins as ready, and comes within the
    /// timeout. A shutdown does not wait for it.
    pub(super) async fn readiness_is_known(&self) {
        let (mut answers, mut desired) = (self.answers.clone(), self.desired.clone());
        tokio::select! {
            _ = answers.wait_for(|answer| !answer.is_waiting()) => {}
            _ = desired.wait_for(|desired| desired.urgent > 0) => {}
        }
    }

    /// Reconciles the Node object forever.
    pub(super) async fn keep_status(&self, mut ticker: Ticker) {
        self.readiness_is_known().await;
        let mut answers = self.answers.clone();
        let mut desired = self.desired.clone();
        let mut facts = self.facts.clone();
        let mut nodes = self.server.subscribe();
        let mut writer = NodeWriter::new(self);
        loop {
            if is_new(&desired) || is_new(&facts) || is_new(&answers) {
                writer.inputs_changed();
            }
            desired.mark_unchanged();
            facts.mark_unchanged();
            answers.mark_unchanged();
            nodes.mark_unchanged();
            let urgent = desired.borrow().urgent;
            let mut interrupt = desired.clone();
            let next = tokio::select! {
                biased;
                // An interrupted write may or may not have taken effect; the next round checks.
                Ok(_) = interrupt.wait_for(|desired| desired.urgent != urgent) => Next::Again,
                next = writer.round() => next,
            };
            let wake = match next {
                Next::Again => continue,
                Next::At(at) => Some(at),
                Next::Idle => None,
            };
            tokio::select! {
                Ok(()) = desired.changed() => writer.inputs_changed(),
                Ok(()) = facts.changed() => writer.inputs_changed(),
                Ok(()) = answers.changed() => writer.inputs_changed(),
                Ok(()) = nodes.changed() => {}
                () = ticker.next() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }
}

fn is_new<T>(receiver: &watch::Receiver<T>) -> bool {
    receiver.has_changed().unwrap_or(false)
}
