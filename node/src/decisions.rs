//! The last decisions, and their lines in the log.

mod log_line;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use winddown_shared::{Event, Recorder, WallClock};

use winddown_control::api::Decision;

pub use log_line::log_decision;

/// How many are kept for `status`.
const KEPT: usize = 20;

/// Writes every event to the log and keeps the last ones. Clones share one memory.
#[derive(Clone)]
pub struct Decisions(Arc<Inner>);

struct Inner {
    last: Mutex<VecDeque<Decision>>,
    version: watch::Sender<u64>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<Event>>>,
    wall: WallClock,
}

impl Decisions {
    /// No decisions yet.
    pub fn new(wall: WallClock) -> Self {
        Self(Arc::new(Inner {
            last: Mutex::default(),
            version: watch::Sender::new(0),
            listeners: Mutex::default(),
            wall,
        }))
    }

    /// The last decisions, the newest last.
    pub fn last(&self) -> Vec<Decision> {
        lock(&self.0.last).iter().cloned().collect()
    }

    /// Goes up with every decision.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Every event from now on.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<Event> {
        let (tx, rx) = mpsc::unbounded_channel();
        lock(&self.0.listeners).push(tx);
        rx
    }
}

impl Recorder for Decisions {
    fn record(&self, event: &Event) {
        // Nothing was decided.
        if matches!(event, Event::Pod(_)) {
            return;
        }
        let decision = Decision::of(self.0.wall.now(), event);
        log_decision(event, &decision);
        lock(&self.0.listeners).retain(|listener| listener.send(event.clone()).is_ok());
        let mut last = lock(&self.0.last);
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(decision);
        drop(last);
        self.0.version.send_modify(|n| *n += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
