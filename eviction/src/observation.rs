//! The amounts that thresholds compare.

use tokio::time::Instant;
use winddown_shared::{FsStats, MemoryStats, NodeStats, Quantity, QuantityFormat};

use crate::signal::{Resource, Signal};

#[cfg(test)]
mod tests;

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
    /// `MemAvailable` plus free swap: a node with swap uses it before a pod is evicted. Swap usage also counts in the
    /// ranking of pods. Capacity and shares of it do not include swap.
    MemAvailableAndSwap,
}

/// A measurement of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The available amount: bytes, inodes or tasks. Negative if more is used than allowed.
    pub available: i64,
    /// The total amount.
    pub capacity: i64,
    /// When it was measured; none if unknown.
    pub at: Option<Instant>,
}

/// The measurements of all signals; absent where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observations([Option<Observation>; Signal::COUNT]);

// === impl Observation ===

impl Observation {
    /// The available amount as messages print it: bytes in powers of 1024, other amounts in powers of 1000.
    #[must_use]
    pub const fn quantity(&self, resource: Resource) -> Quantity {
        let format = match resource {
            Resource::Memory | Resource::EphemeralStorage => QuantityFormat::BinarySi,
            Resource::Inodes | Resource::Pids => QuantityFormat::DecimalSi,
        };
        Quantity::new(self.available, format)
    }

    fn new(available: u64, capacity: u64, at: Option<Instant>) -> Self {
        Self { available: signed(available), capacity: signed(capacity), at }
    }
}

// === impl Observations ===

impl Observations {
    /// Derives the observations from the node's figures. What was not measured is absent.
    #[must_use]
    pub fn of(stats: &NodeStats, memory: MemoryAvailable) -> Self {
        let mut all = Self::default();
        let swap = stats.swap.map_or(0, |swap| swap.free);
        let memory_of = |stats: MemoryStats| {
            let capacity = stats.available.saturating_add(stats.working_set);
            let available = match memory {
                MemoryAvailable::WorkingSet => stats.available,
                MemoryAvailable::MemAvailable => stats.mem_available.unwrap_or(stats.available),
                MemoryAvailable::MemAvailableAndSwap => {
                    stats.mem_available.unwrap_or(stats.available).saturating_add(swap)
                }
            };
            Observation::new(available, capacity, stats.at)
        };
        all.set(Signal::MemoryAvailable, stats.memory.map(memory_of));
        all.set(Signal::AllocatableMemoryAvailable, stats.pods_memory.map(memory_of));
        all.file_system(Signal::NodeFsAvailable, Signal::NodeFsInodesFree, stats.nodefs);
        all.file_system(Signal::ImageFsAvailable, Signal::ImageFsInodesFree, stats.imagefs);
        all.file_system(
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
            stats.containerfs,
        );
        let pids = stats.pids.map(|pids| Observation {
            available: signed(pids.max).saturating_sub(signed(pids.running)),
            capacity: signed(pids.max),
            at: pids.at,
        });
        all.set(Signal::PidAvailable, pids);
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

    fn file_system(&mut self, bytes: Signal, inodes: Signal, stats: Option<FsStats>) {
        let Some(stats) = stats else { return };
        let both =
            |left: Option<u64>, all: Option<u64>| Some(Observation::new(left?, all?, stats.at));
        self.set(bytes, both(stats.available_bytes, stats.capacity_bytes));
        // File systems that create inodes as needed report 0 in total and 0 free: they never run out.
        let counted = stats.inodes.filter(|inodes| *inodes > 0);
        self.set(inodes, both(stats.inodes_free, counted));
    }
}

pub(crate) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
