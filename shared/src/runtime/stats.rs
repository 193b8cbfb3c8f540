//! Measured resource usage of the node and its pods.
//!
//! Filled in by the readers of the machine and by the runtimes; the controllers that act on them do
//! not care where they come from. A figure that could not be measured is absent, never 0.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Resource usage of the whole node. Small and without pointers, as it is measured often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Memory of the whole node.
    pub memory: Option<MemoryStats>,
    /// Memory of the cgroup that all pods are in.
    pub pods_memory: Option<MemoryStats>,
    /// Swap of the whole node; the total is 0 on a node without swap.
    pub swap: Option<SwapStats>,
    /// The file system of the agent's own directory: logs, volumes.
    pub nodefs: Option<FsStats>,
    /// The file system of the runtime's images.
    pub imagefs: Option<FsStats>,
    /// The file system of the containers' writable layers.
    pub containerfs: Option<FsStats>,
    /// Which of these file systems are the same; absent until the runtime reports it.
    pub layout: Option<FsLayout>,
    /// Tasks (threads) of the node.
    pub tasks: Option<LimitStats>,
    /// Time lost to lack of memory, by the whole node.
    pub memory_pressure: Option<PressureStats>,
    /// Time lost to lack of memory, by the cgroup that all pods are in.
    pub pods_memory_pressure: Option<PressureStats>,
    /// Number of processes that the kernel has killed for lack of memory so far, below the cgroup
    /// that bounds the node, or else below that of the pods. Includes those that hit a limit of
    /// their own. Not available with cgroups version 1.
    pub oom_kills: Option<u64>,
}

/// Memory of a node or of a cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// Usage without the file cache that was not used recently: usage − inactive_file.
    pub working_set: u64,
    /// The limit − `working_set`.
    pub available: u64,
    /// Memory available without swapping, including file cache in use and reclaimable slab:
    /// `MemAvailable`, or the closest equivalent for a cgroup.
    pub mem_available: Option<u64>,
}

/// Swap of a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapStats {
    /// The total, within the limit of the cgroup that bounds the node.
    pub total: u64,
    /// The free part, within the same limit.
    pub free: u64,
    /// Memory used by compressed pages (`Zswap`); absent on kernels without zswap.
    pub zswap: Option<u64>,
    /// Size of these pages before compression (`Zswapped`). They occupy swap space all the same.
    pub zswapped: Option<u64>,
}

/// Usage of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// Its size, in bytes.
    pub capacity_bytes: Option<u64>,
    /// Space that unprivileged users can still write, in bytes.
    pub available_bytes: Option<u64>,
    /// Space in use, in bytes: less than what unprivileged users cannot write, part of which is kept for root.
    pub used_bytes: Option<u64>,
    /// The number of inodes; absent where they are created on demand.
    pub inodes: Option<u64>,
    /// The number of free inodes.
    pub inodes_free: Option<u64>,
}

/// What the node can have only so many of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// The limit.
    pub max: u64,
    /// The current number.
    pub used: u64,
}

/// Share of the time that tasks waited for something, over the last 10 s, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// At least one task waited.
    pub some_avg10: f32,
    /// Every task that wanted to run waited.
    pub full_avg10: f32,
    /// Total time since boot that at least one task has waited, in µs.
    pub some_total_us: u64,
    /// Total time since boot that every task has waited, in µs.
    pub full_total_us: u64,
}

/// Which file systems of a node are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FsLayout {
    /// All are the same.
    #[default]
    One,
    /// Images and writable layers share one of their own.
    ImageFs,
    /// Images are on one of their own, without the writable layers.
    Split,
}

/// Resource usage of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PodStats {
    /// Its working set, in bytes, as in [`MemoryStats::working_set`].
    pub memory_working_set: Option<u64>,
    /// File cache in its working set, in bytes, which was used recently; `None` where the kernel
    /// cannot be asked to reclaim it.
    pub active_file: Option<u64>,
    /// Memory that can be swapped out within the pod's own swap limits, in bytes; `None` as for `active_file`.
    pub swappable: Option<u64>,
    /// Its usage of swap, in bytes, zswap included; not available with cgroups version 1.
    pub swap: Option<u64>,
    /// Memory used by its compressed pages, in bytes.
    pub zswap: Option<u64>,
    /// CPU time used so far.
    pub cpu_time: Option<Duration>,
    /// The number of its tasks (threads).
    pub tasks: Option<u64>,
    /// Its containers (init containers, sidecars and regular ones), in the order in which they are to be listed.
    pub containers: Vec<ContainerStats>,
    /// Its volumes that are directories on the node.
    pub volumes: Vec<VolumeStats>,
    /// Whether its containers have writable layers that the runtime failed to report.
    pub has_unknown_layers: bool,
    /// Its total usage of the node's disks: containers, logs, volumes, the pod's own files.
    pub ephemeral: Option<DiskUse>,
}

/// Resource usage of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerStats {
    /// The name in the pod's spec.
    pub name: Arc<str>,
    /// Its working set, in bytes.
    pub memory_working_set: Option<u64>,
    /// CPU time used so far by this run of the container.
    pub cpu_time: Option<Duration>,
    /// Its writable layer.
    pub rootfs: Option<DiskUse>,
    /// Its logs.
    pub logs: Option<DiskUse>,
}

/// Disk usage of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// The name in the pod's spec.
    pub name: Arc<str>,
    /// The usage.
    pub used: DiskUse,
}

/// An amount of disk usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Whether there is more, which could not be counted in time.
    pub is_partial: bool,
}

impl DiskUse {
    /// The sum of both, saturating.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
            is_partial: self.is_partial || other.is_partial,
        }
    }
}
