//! Decisions as Kubernetes Events.
//!
//! [`Events`] takes them from anywhere and never blocks: what it is given waits in a bounded queue.
//! One task, [`EventWriter`], counts repetitions, holds back floods and writes to `events.k8s.io/v1`, of
//! several objects at once and of each in order.
//! Nothing that ends a pod ever waits for it; a shutdown waits at the end, and only as long as it is
//! told to ([`Events::flush`]).
//!
//! Reasons and messages are the kubelet's, byte for byte, because tools search for them. Who reports is
//! not the kubelet, and says so: `reportingController` is `winddown`.

mod body;
mod correlate;
mod draft;
mod of_decision;
mod of_pod;
mod queue;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use kube::Client;
use tokio::time::Instant;
use winddown_shared::{Event, Recorder, WallClock};

pub use draft::{EventDraft, EventKind, NodeRef, Subject, Weight};
pub use of_decision::events_of;
pub use queue::EventCounts;
use queue::Queue;
pub use writer::EventWriter;

/// How many events may wait when nothing else is said.
pub const CAPACITY: usize = 1000;

/// Takes events. Clones share one queue.
#[derive(Clone, Debug)]
pub struct Events {
    node: NodeRef,
    queue: Arc<Queue>,
}

impl Events {
    /// A queue for at most `capacity` events of the agent on `node`, and the task that writes them.
    pub fn new(
        client: Client,
        node: NodeRef,
        capacity: usize,
        wall: WallClock,
    ) -> (Self, EventWriter) {
        let events = Self::unwritten(node, capacity, wall);
        let writer = EventWriter::new(client, Arc::clone(&events.queue), &events.node);
        (events, writer)
    }

    /// A queue without a writer: for a node without an API server, and for tests.
    pub fn unwritten(node: NodeRef, capacity: usize, wall: WallClock) -> Self {
        Self { node, queue: Arc::new(Queue::new(capacity, wall)) }
    }

    /// Queues one event. When the queue is full the oldest routine event goes; a decision goes only
    /// when there is nothing else.
    pub fn send(&self, draft: EventDraft) {
        self.queue.push(draft);
    }

    /// What became of the events so far.
    pub fn counts(&self) -> EventCounts {
        self.queue.counts()
    }

    /// Takes the oldest event that waits, instead of the task that writes them.
    pub fn take(&self) -> Option<EventDraft> {
        self.queue.take()
    }

    /// Waits until everything that was sent is written, at most until `deadline`, decisions first.
    /// Answers with the objects of which something is left. From now on the back-off is short: the node goes down.
    pub async fn flush(&self, deadline: Instant) -> Vec<Subject> {
        self.queue.flush(deadline).await
    }
}

impl Recorder for Events {
    fn record(&self, event: &Event) {
        for draft in events_of(event, &self.node) {
            self.send(draft);
        }
    }
}
