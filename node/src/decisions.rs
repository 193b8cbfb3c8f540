//! Keeps the last decisions and logs each one.

mod log_line;

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use winddown_shared::{Event, Mutex, Recorder, WallClock};

use winddown_control::api::Decision;

pub use log_line::log_decision;

/// The number of decisions that are kept for `status`.
const MAX_KEPT_DECISIONS: usize = 20;

/// Logs every decision and keeps the last ones. Clones share their state.
#[derive(Clone)]
pub struct Decisions(Arc<DecisionsShared>);

struct DecisionsShared {
    last: Mutex<VecDeque<Decision>>,
    version: watch::Sender<u64>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<Event>>>,
    wall: WallClock,
}

impl Decisions {
    /// Creates an empty list of decisions.
    pub fn new(wall: WallClock) -> Self {
        Self(Arc::new(DecisionsShared {
            last: Mutex::default(),
            version: watch::Sender::new(0),
            listeners: Mutex::default(),
            wall,
        }))
    }

    /// The last decisions, newest last.
    pub fn last(&self) -> Vec<Decision> {
        self.0.last.lock().iter().cloned().collect()
    }

    /// A counter that goes up with every decision.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Subscribes to the event of every decision from now on.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<Event> {
        let (tx, rx) = mpsc::unbounded_channel();
        self.0.listeners.lock().push(tx);
        rx
    }
}

impl Recorder for Decisions {
    fn record(&self, event: &Event) {
        // Not a decision.
        if matches!(event, Event::Pod(_)) {
            return;
        }
        let decision = Decision::of(self.0.wall.now(), event);
        log_decision(event, &decision);
        self.0.listeners.lock().retain(|listener| listener.send(event.clone()).is_ok());
        let mut last = self.0.last.lock();
        if last.len() == MAX_KEPT_DECISIONS {
            last.pop_front();
        }
        last.push_back(decision);
        drop(last);
        self.0.version.send_modify(|n| *n += 1);
    }
}
