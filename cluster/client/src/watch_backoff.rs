//! How long a watch that fails waits before it goes on.

use std::time::Duration;

use kube::runtime::watcher::{self, Event};
use tokio::time::Instant;
use winddown_shared::Backoff;

use crate::refusal::{self, Refusal};

/// The delays between the attempts of a list and its watch. They start over once the watch has shown a change, or has
/// lasted as long as the longest delay: a list alone proves nothing of its watch, nor a page of the next one.
#[derive(Debug)]
pub struct WatchBackoff {
    backoff: Backoff,
    /// When the watch last began; `None` while objects are being listed.
    since: Option<Instant>,
}

impl WatchBackoff {
    /// For what people or a shutdown wait for: 5 ms to 10 s.
    pub const EAGER: Self = Self { backoff: Backoff::EAGER, since: None };

    /// Records an event. Returns whether an outage is over with it.
    pub fn took<K>(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Init | Event::InitApply(_) => {
                self.since = None;
                false
            }
            Event::InitDone => {
                self.since = Some(Instant::now());
                true
            }
            Event::Apply(_) | Event::Delete(_) => {
                self.backoff.reset();
                true
            }
        }
    }

    /// Counts a failure. Returns the delay before the next attempt, at least as long as the API server asks.
    pub fn after_failure(&mut self, error: &watcher::Error) -> Duration {
        if self.since.is_some_and(|since| since.elapsed() >= self.backoff.longest()) {
            self.backoff.reset();
        }
        let asked = refusal::of_watch(error).and_then(Refusal::retry_after);
        let delay = self.backoff.after_failure(asked);
        // A watch that goes on without another list tells no beginning.
        self.since = self.since.map(|_| Instant::now() + delay);
        delay
    }
}
