//! The interface to what a runtime can reclaim without terminating a pod.

use std::time::Duration;

use crate::{PodUid, RuntimeError};

/// Reclaims what no running pod needs, or can do without. Implemented by runtimes next to [`Runtime`](crate::Runtime).
///
/// Only one call runs at a time; each is bounded in time, and dropping its future leaves the rest undone.
pub trait Garbage: Send + Sync + 'static {
    /// Removes exited containers that no status refers to any more, with their logs.
    ///
    /// # Errors
    /// The runtime did not answer, or refused one; the others are removed.
    fn remove_dead_containers(&self) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;

    /// Removes images that are used by no container, running or not, and by no known pod, and that
    /// have been present for `min_age`. A runtime without images removes none.
    ///
    /// # Errors
    /// The runtime did not answer, or refused one; the others are removed.
    fn remove_unused_images(
        &self,
        min_age: Duration,
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send {
        let _ = min_age;
        async { Ok(Freed::default()) }
    }

    /// Removes rotated log files; those that are still written to stay.
    ///
    /// # Errors
    /// One could not be removed; the others are.
    fn remove_rotated_logs(&self) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;

    /// Has the kernel reclaim memory from a running pod until `figure` has fallen by `bytes`, nothing more can be
    /// reclaimed, or `time` has passed. A runtime that knows no cgroups reclaims nothing.
    ///
    /// # Errors
    /// The kernel does not support it: cgroups version 1, or Linux before 5.19.
    fn reclaim_memory(
        &self,
        uid: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> impl Future<Output = Result<Freed, RuntimeError>> + Send {
        let _ = (uid, figure, bytes, time);
        async { Ok(Freed::default()) }
    }
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
pub struct Freed {
    /// The number of containers, images or files.
    pub items: u64,
    /// The number of bytes, as far as known; 0 says nothing.
    pub bytes: u64,
}

impl std::ops::AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.items = self.items.saturating_add(other.items);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
