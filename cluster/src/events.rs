//! Decisions as Kubernetes Events.
//!
//! [`Events`] accepts them from anywhere and never blocks: they wait in a bounded queue. One task,
//! [`EventWriter`], counts repetitions, holds back floods and writes to `events.k8s.io/v1`, for
//! several objects concurrently and for each in order. Nothing that stops a pod ever waits for it;
//! a shutdown waits at its end, for at most the time that it chooses ([`Events::flush`]).
//!
//! Reasons and messages are the kubelet's, byte for byte, because tools search for them. The
//! reporter is not: `reportingController` is `winddown`, or the name of the program that embeds it.

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
use queue::EventQueue;
pub use writer::EventWriter;

/// The usual capacity of the queue.
pub const CAPACITY: usize = 1000;

/// Accepts events. Clones share one queue.
#[derive(Clone, Debug)]
pub struct Events {
    node: NodeRef,
    queue: Arc<EventQueue>,
}

impl Events {
    /// Creates a queue for at most `capacity` events of the agent on `node`, and the task that writes them.
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

    /// Creates a queue without a writer: for a node without an API server, and for tests.
    pub fn unwritten(node: NodeRef, capacity: usize, wall: WallClock) -> Self {
        Self { node, queue: Arc::new(EventQueue::new(capacity, wall)) }
    }

    /// Queues one event. If the queue is full the oldest routine event is dropped; a decision is
    /// dropped only for another decision.
    pub fn send(&self, draft: EventDraft) {
        self.queue.push(draft);
    }

    /// The number of events so far, by outcome.
    pub fn counts(&self) -> EventCounts {
        self.queue.counts()
    }

    /// Removes and returns the oldest waiting event, in place of the writer.
    pub fn take(&self) -> Option<EventDraft> {
        self.queue.take()
    }

    /// Waits until everything that was sent is written, decisions first, but not beyond `deadline`. Returns
    /// the objects with unwritten events. Until then the backoff is short, because the node goes down.
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
