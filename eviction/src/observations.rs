//! What was measured for every signal.

use winddown_shared::NodeStats;

use crate::observation::{MemoryAvailable, Observation};
use crate::signal::Signal;

#[cfg(test)]
mod tests;

/// The measurements of all signals; absent where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observations([Option<Observation>; Signal::COUNT]);

// === impl Observations ===

impl Observations {
    /// Derives the observations from the node's figures. What was not measured is absent.
    #[must_use]
    pub fn of(stats: &NodeStats, memory: MemoryAvailable) -> Self {
        let mut all = Self::default();
        for signal in Signal::ALL {
            all.set(signal, signal.available(stats, memory));
        }
        all
    }

    /// The observation for `signal`, if it was measured.
    #[must_use]
    pub const fn get(&self, signal: Signal) -> Option<Observation> {
        self.0[signal.index()]
    }

    /// Sets the observation for `signal`.
    pub const fn set(&mut self, signal: Signal, observation: Option<Observation>) {
        self.0[signal.index()] = observation;
    }
}
