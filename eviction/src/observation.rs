//! The amounts that thresholds compare.

use tokio::time::Instant;
use winddown_shared::{FsStats, MemoryStats, Quantity};

use crate::unit::Unit;

/// The figure that stands for available memory.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum MemoryAvailable {
    /// `MemAvailable`: file cache that the kernel can reclaim counts as available, even if recently used. Falls back to
    /// the working set where `MemAvailable` cannot be read.
    #[default]
    MemAvailable,
    /// Capacity − working set, as in the kubelet: recently used file cache counts as used (k8s#43916).
    WorkingSet,
}

/// A measurement of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The available amount, in the signal's unit. Negative if more is used than allowed.
    pub available: i64,
    /// The total amount.
    pub capacity: i64,
    /// When it was measured; none if unknown.
    pub at: Option<Instant>,
}

// === impl Observation ===

impl Observation {
    /// The available amount as messages print it: bytes in powers of 1024, other amounts in powers of 1000.
    #[must_use]
    pub const fn quantity(&self, unit: Unit) -> Quantity {
        Quantity::new(self.available, unit.format())
    }

    /// Of a memory figure, by the rule for which memory counts as available.
    pub(crate) fn memory(stats: MemoryStats, counted: MemoryAvailable) -> Self {
        let available = match counted {
            MemoryAvailable::WorkingSet => stats.available,
            MemoryAvailable::MemAvailable => stats.mem_available.unwrap_or(stats.available),
        };
        Self::new(available, stats.available.saturating_add(stats.working_set), stats.at)
    }

    /// Of the bytes of a file system.
    pub(crate) fn bytes(stats: FsStats) -> Option<Self> {
        Some(Self::new(stats.available_bytes?, stats.capacity_bytes?, stats.at))
    }

    /// Of the inodes of a file system.
    pub(crate) fn inodes(stats: FsStats) -> Option<Self> {
        Some(Self::new(stats.inodes_free?, stats.inodes?, stats.at))
    }

    /// Of things that may be at most `max`.
    pub(crate) fn within(max: u64, used: u64, at: Option<Instant>) -> Self {
        let available = signed(max).saturating_sub(signed(used));
        Self { available, capacity: signed(max), at }
    }

    fn new(available: u64, capacity: u64, at: Option<Instant>) -> Self {
        Self { available: signed(available), capacity: signed(capacity), at }
    }
}

pub(crate) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
