//! What a runtime can reclaim without terminating a pod.

use std::time::Duration;

/// What a runtime can remove because no pod needs it.
// Exhaustive: what is new is a decision of each runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// Exited containers that no status refers to any more, with their logs.
    DeadContainers,
    /// Log files that were rotated; those that are still written to stay.
    RotatedLogs,
    /// Images that are used by no container, running or not, and by no known pod.
    UnusedImages {
        /// Only those that have been present for this long: the pod that they are for may not have started yet.
        min_age: Duration,
    },
}

/// The figure of a pod's memory that is to fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFigure {
    /// All memory but the file cache that was not used recently.
    WorkingSet,
    /// Memory that can be swapped out.
    Anonymous,
}

/// What was reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Freed {
    /// The number of containers, images or files.
    pub items: u64,
    /// The number of bytes, as far as known; 0 says nothing.
    pub bytes: u64,
}

impl Freed {
    /// So many items, of so many bytes altogether.
    pub const fn new(items: u64, bytes: u64) -> Self {
        Self { items, bytes }
    }
}

impl std::ops::AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.items = self.items.saturating_add(other.items);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
