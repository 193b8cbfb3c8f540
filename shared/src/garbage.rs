//! The seam to what a runtime can give back without ending a pod.

use std::time::Duration;

use crate::{PodUid, RuntimeError};

/// Gives back what no running pod needs, or can do without. A runtime implements it beside [`Runtime`](crate::Runtime).
///
/// One call at a time; each is bounded in time, and dropping its future leaves the rest undone.
pub trait Garbage: Send + Sync + 'static {
    /// Removes containers that have ended and that no status is told from any more, with their logs.
    ///
    /// # Errors
    /// The runtime did not answer, or refused one; the others are removed.
    fn remove_dead_containers(&self) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;

    /// Removes images that no container, running or not, and no known pod names, and that have been
    /// there for `min_age`. A runtime without images removes none.
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

    /// Removes log files that were turned away; those that are being written stay.
    ///
    /// # Errors
    /// One could not be removed; the others are.
    fn remove_rotated_logs(&self) -> impl Future<Output = Result<Freed, RuntimeError>> + Send;

    /// Has the kernel take memory back from a running pod until `figure` has fallen by `bytes`, no more can be had, or
    /// `time` is over. A runtime that knows no cgroups takes none.
    ///
    /// # Errors
    /// The kernel cannot: version 1 of cgroups, or Linux before 5.19.
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

/// Which figure of a pod's memory is to fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFigure {
    /// All but the file cache that was not used lately.
    WorkingSet,
    /// What can be swapped out.
    Anonymous,
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Containers, images or files.
    pub items: u64,
    /// Bytes, as far as they are known; 0 says nothing.
    pub bytes: u64,
}

impl std::ops::AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.items = self.items.saturating_add(other.items);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
