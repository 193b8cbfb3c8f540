//! What the node and its pods use, as it was measured.
//!
//! The readers of the machine and the runtimes fill these in; the controllers that act on them do
//! not care where they come from. What could not be measured is absent, never 0.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// What the whole node uses. Small and without pointers: it is measured often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeStats {
    /// Memory of the whole node.
    pub memory: Option<MemoryStats>,
    /// Memory of the cgroup that all pods are in.
    pub pods_memory: Option<MemoryStats>,
    /// Swap of the whole node; its total is 0 on a node without.
    pub swap: Option<SwapStats>,
    /// The file system with the agent's own directory: logs, volumes.
    pub nodefs: Option<FsStats>,
    /// The file system with the runtime's images.
    pub imagefs: Option<FsStats>,
    /// The file system with the containers' writable layers.
    pub containerfs: Option<FsStats>,
    /// Which of these are one and the same; absent while the runtime has not said.
    pub layout: Option<FsLayout>,
    /// Tasks of the node.
    pub pids: Option<PidStats>,
    /// Time lost for want of memory, by the whole node.
    pub memory_pressure: Option<PressureStats>,
    /// The same, by the cgroup that all pods are in.
    pub pods_memory_pressure: Option<PressureStats>,
    /// How many processes the kernel has killed for want of memory so far, below the cgroup that
    /// bounds the node, or else below the pods'. Those at a limit of their own count as well.
    /// Version 1 does not tell.
    pub oom_kills: Option<u64>,
}

/// Memory of a node or of a cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// Usage without file cache that was not used lately: usage − inactive_file.
    pub working_set: u64,
    /// The limit − `working_set`.
    pub available: u64,
    /// What can be had without swapping, file cache that is in use and reclaimable slab included:
    /// `MemAvailable`, or what comes nearest to it for a cgroup.
    pub mem_available: Option<u64>,
}

/// Swap of a node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapStats {
    /// All there is, within the limit of the cgroup that bounds the node.
    pub total: u64,
    /// What of it is free, within the same limit.
    pub free: u64,
    /// The memory that compressed pages take (`Zswap`); kernels without zswap do not tell.
    pub zswap: Option<u64>,
    /// What these pages were before they were compressed (`Zswapped`). They have their place in swap all the same.
    pub zswapped: Option<u64>,
}

/// One file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// Its size, in bytes.
    pub capacity_bytes: Option<u64>,
    /// What ordinary users can still write, in bytes.
    pub available_bytes: Option<u64>,
    /// How many inodes it has; absent where they are made as needed.
    pub inodes: Option<u64>,
    /// How many of them are free.
    pub inodes_free: Option<u64>,
}

/// Tasks, which is to say threads, of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidStats {
    /// When it was read.
    pub at: Option<Instant>,
    /// How many there can be.
    pub max: u64,
    /// How many there are.
    pub running: u64,
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
    /// How long at least one task has waited since the boot, in µs.
    pub some_total_us: u64,
    /// How long all have.
    pub full_total_us: u64,
}

/// Which file systems of a node are one and the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FsLayout {
    /// Everything is on one.
    #[default]
    One,
    /// Images and writable layers are on one of their own.
    ImageFs,
    /// Images are on one of their own, writable layers are not with them.
    Split,
}

/// What one pod uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodStats {
    /// Its working set, in bytes, as in [`MemoryStats::working_set`].
    pub memory_working_set: Option<u64>,
    /// The file cache in its working set, which was used lately, in bytes; none where the kernel cannot be asked to
    /// take it back.
    pub active_file: Option<u64>,
    /// What swap may take by the pod's own limits on it, in bytes; none as before.
    pub swappable: Option<u64>,
    /// What of it is in swap, in bytes, zswap included; version 1 does not tell.
    pub swap: Option<u64>,
    /// The memory that its compressed pages take, in bytes.
    pub zswap: Option<u64>,
    /// Processor time that it has used so far.
    pub cpu_time: Option<Duration>,
    /// How many processes it has.
    pub processes: Option<u64>,
    /// Its containers: init containers, sidecars and regular ones, in the order in which they are to
    /// be named.
    pub containers: Vec<ContainerStats>,
    /// Its volumes that are directories of the node.
    pub volumes: Vec<VolumeStats>,
    /// All that it uses of the node's disks: containers, logs, volumes, the pod's own files.
    pub ephemeral: Option<DiskUse>,
}

/// What one container uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerStats {
    /// The name in the pod's spec.
    pub name: Arc<str>,
    /// Its working set, in bytes.
    pub memory_working_set: Option<u64>,
    /// Processor time that this run of it has used so far.
    pub cpu_time: Option<Duration>,
    /// Its writable layer.
    pub rootfs: Option<DiskUse>,
    /// Its logs.
    pub logs: Option<DiskUse>,
}

/// What one volume uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// The name in the pod's spec.
    pub name: Arc<str>,
    /// What is in it.
    pub used: DiskUse,
}

/// Part of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl DiskUse {
    /// Both together, saturating.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}
