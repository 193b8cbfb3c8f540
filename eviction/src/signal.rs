//! Eviction signals and the resources behind them: a table of each. Nothing else lists them, and `make lint` refuses to
//! ask elsewhere for one resource or one condition: what is decided by it is a column.
//!
//! A new signal is a row here, as is a new resource; a new condition is a row of `PressureCondition`. A name or text
//! that the kubelet has too is the kubelet's. Its figure of the node is a field of `NodeStats`, which the files in
//! `shared/host/src/usage` read; that of a pod is a field of `PodStats`, with its row in
//! `runtimes/engine/src/stats/figures.rs`. One that is watched unless configured otherwise is in `DEFAULT_HARD`. Add it to
//! the table in `docs/explanation/eviction.md`; the compiler and the tests name the rest.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use winddown_shared::{ContainerStats, DiskUse, NodeStats, PodStats, PressureCondition, Requests};

use crate::observation::{MemoryAvailable, Observation};
use crate::unit::Unit;

#[cfg(test)]
mod tests;

struct SignalRow {
    /// The name as the configuration writes it.
    name: &'static str,
    resource: Resource,
    /// Reads what is available from the node's figures; none if it was not measured.
    available: fn(&NodeStats, MemoryAvailable) -> Option<Observation>,
    /// What a pod uses of it.
    usage: PodUsage,
    /// The signal whose threshold in the configuration holds for this one; none if that depends on the file systems.
    configured_as: Option<Signal>,
}

/// How to read what a pod uses from its figures.
#[derive(Clone, Copy)]
pub(crate) enum PodUsage {
    /// A figure of the kernel; none if it was not measured.
    Figure(fn(&PodStats) -> Option<u64>),
    /// A part of what it has on a file system.
    OnDisk(FileSystem, fn(DiskUse) -> u64),
}

/// What is decided by a resource.
pub(crate) struct ResourceRow {
    /// The name as messages and requests write it.
    name: &'static str,
    unit: Unit,
    /// The node condition that a shortage raises.
    condition: PressureCondition,
    /// The most that can be used up per second: several processors that fault in memory, a fast disk, a fork bomb.
    pub(crate) fastest_use: u64,
    /// Whether it can be gone within a second, so that it is measured more often as it comes near its threshold.
    pub(crate) is_sudden: bool,
    /// Whether a shortage of it is acted on before one of another resource. A stall for memory counts as such a shortage.
    pub(crate) comes_first: bool,
    /// Whether the kernel can swap it out of a running pod instead of an eviction, so that a pod's swap counts as used.
    pub(crate) is_swapped_out: bool,
    /// Whether tasks stall for it: after an eviction for it, stalls evict no other pod for a time.
    pub(crate) stalls_tasks: bool,
    pub(crate) freed_by: FreedBy,
    /// A pod's request; none if pods are compared by priority, and not by requests.
    pub(crate) request: Option<fn(&Requests) -> i64>,
    /// What a container uses of it, as messages blame it; none if it was not measured, or if no container is blamed.
    pub(crate) blamed: fn(&ContainerStats) -> Option<u64>,
    /// The same of a pod with a request of its own.
    pub(crate) blamed_pod: fn(&PodStats) -> Option<u64>,
}

/// What frees a pod's use of a resource once the pod stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedBy {
    /// The exit of its processes.
    Exit,
    /// The reaping of its tasks.
    Reaping,
    /// The removal of its files, some time after it has stopped.
    FileRemoval,
}

/// Defines the signals from their rows.
macro_rules! signals {
    ($($(#[doc = $doc:literal])+ $signal:ident = $row:expr;)+) => {
        /// An eviction signal: an available amount of the node that is watched. Signals of your own cannot be added.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Signal {
            $($(#[doc = $doc])+ $signal,)+
        }

        impl Signal {
            /// All signals, in the order in which they are reported.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$signal),+];

            /// The number of signals.
            pub const COUNT: usize = [$(stringify!($signal)),+].len();

            const ROWS: [SignalRow; Self::COUNT] = [$($row),+];
        }
    };
}

signals! {
    /// Available memory of the node.
    MemoryAvailable = SignalRow {
        name: "memory.available",
        resource: Resource::Memory,
        available: |node, counted| Some(Observation::memory(node.memory?, counted)),
        usage: PodUsage::Figure(|pod| pod.memory_working_set),
        configured_as: Some(Signal::MemoryAvailable),
    };
    /// Available memory of the cgroup that contains all pods.
    AllocatableMemoryAvailable = SignalRow {
        name: "allocatableMemory.available",
        resource: Resource::Memory,
        available: |node, counted| Some(Observation::memory(node.pods_memory?, counted)),
        usage: PodUsage::Figure(|pod| pod.memory_working_set),
        configured_as: Some(Signal::MemoryAvailable),
    };
    /// Available bytes on the agent's own file system.
    NodeFsAvailable = SignalRow {
        name: "nodefs.available",
        resource: Resource::EphemeralStorage,
        available: |node, _| Observation::bytes(node.nodefs?),
        usage: PodUsage::OnDisk(FileSystem::Node, |used| used.bytes),
        configured_as: Some(Signal::NodeFsAvailable),
    };
    /// Free inodes on the agent's own file system.
    NodeFsInodesFree = SignalRow {
        name: "nodefs.inodesFree",
        resource: Resource::Inodes,
        available: |node, _| Observation::inodes(node.nodefs?),
        usage: PodUsage::OnDisk(FileSystem::Node, |used| used.inodes),
        configured_as: Some(Signal::NodeFsInodesFree),
    };
    /// Available bytes on the file system with the images.
    ImageFsAvailable = SignalRow {
        name: "imagefs.available",
        resource: Resource::EphemeralStorage,
        available: |node, _| Observation::bytes(node.imagefs?),
        usage: PodUsage::OnDisk(FileSystem::Image, |used| used.bytes),
        configured_as: Some(Signal::ImageFsAvailable),
    };
    /// Free inodes on the file system with the images.
    ImageFsInodesFree = SignalRow {
        name: "imagefs.inodesFree",
        resource: Resource::Inodes,
        available: |node, _| Observation::inodes(node.imagefs?),
        usage: PodUsage::OnDisk(FileSystem::Image, |used| used.inodes),
        configured_as: Some(Signal::ImageFsInodesFree),
    };
    /// Available bytes on the file system with the writable layers.
    ContainerFsAvailable = SignalRow {
        name: "containerfs.available",
        resource: Resource::EphemeralStorage,
        available: |node, _| Observation::bytes(node.containerfs?),
        usage: PodUsage::OnDisk(FileSystem::Container, |used| used.bytes),
        configured_as: None,
    };
    /// Free inodes on the file system with the writable layers.
    ContainerFsInodesFree = SignalRow {
        name: "containerfs.inodesFree",
        resource: Resource::Inodes,
        available: |node, _| Observation::inodes(node.containerfs?),
        usage: PodUsage::OnDisk(FileSystem::Container, |used| used.inodes),
        configured_as: None,
    };
    /// The number of tasks that can still be started.
    PidAvailable = SignalRow {
        name: "pid.available",
        resource: Resource::Tasks,
        available: |node, _| {
            let tasks = node.tasks?;
            Some(Observation::within(tasks.max, tasks.used, tasks.at))
        },
        usage: PodUsage::Figure(|pod| pod.tasks),
        configured_as: Some(Signal::PidAvailable),
    };
}

/// Defines the resources from their rows: with each, the field of its figure in the pods' usage of a case.
macro_rules! resources {
    ($($(#[doc = $doc:literal])+ $resource:ident, $figure:ident = $row:expr;)+) => {
        /// The resource behind a signal.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Resource {
            $($(#[doc = $doc])+ $resource,)+
        }

        /// A pod's usage in a case.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct CaseStats {
            pub(crate) name: String,
            pub(crate) namespace: Option<String>,
            $($figure: Option<u64>,)+
        }

        impl CaseStats {
            pub(crate) fn usage(&self, resource: Resource) -> Option<u64> {
                match resource {
                    $(Resource::$resource => self.$figure,)+
                }
            }
        }

        impl Resource {
            pub(crate) const fn row(self) -> ResourceRow {
                match self {
                    $(Self::$resource => $row,)+
                }
            }
        }
    };
}

resources! {
    /// Bytes of memory.
    Memory, memory_working_set_bytes = ResourceRow {
        name: "memory",
        unit: Unit::Bytes,
        condition: PressureCondition::Memory,
        fastest_use: 1 << 30,
        is_sudden: true,
        comes_first: true,
        is_swapped_out: true,
        stalls_tasks: true,
        freed_by: FreedBy::Exit,
        request: Some(Requests::memory_bytes),
        blamed: |container| container.memory_working_set,
        blamed_pod: |pod| pod.memory_working_set,
    };
    /// Bytes of disk.
    EphemeralStorage, disk_used_bytes = ResourceRow {
        name: "ephemeral-storage",
        unit: Unit::Bytes,
        condition: PressureCondition::Disk,
        fastest_use: 1 << 30,
        is_sudden: false,
        comes_first: false,
        is_swapped_out: false,
        stalls_tasks: false,
        freed_by: FreedBy::FileRemoval,
        request: Some(Requests::ephemeral_storage_bytes),
        blamed: |container| Some(container.rootfs?.and(container.logs?).bytes),
        blamed_pod: |_| None,
    };
    /// Inodes.
    Inodes, inodes_used = ResourceRow {
        name: "inodes",
        unit: Unit::Count,
        condition: PressureCondition::Disk,
        fastest_use: 50_000,
        is_sudden: false,
        comes_first: false,
        is_swapped_out: false,
        stalls_tasks: false,
        freed_by: FreedBy::FileRemoval,
        // Pods cannot request any.
        request: Some(|_| 0),
        blamed: |_| None,
        blamed_pod: |_| None,
    };
    /// Tasks.
    Tasks, process_count = ResourceRow {
        name: "pids",
        unit: Unit::Count,
        condition: PressureCondition::Pid,
        fastest_use: 5_000,
        is_sudden: false,
        comes_first: false,
        is_swapped_out: false,
        stalls_tasks: false,
        freed_by: FreedBy::Reaping,
        request: None,
        blamed: |_| None,
        blamed_pod: |_| None,
    };
}

/// A file system that the agent measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileSystem {
    /// The one with the agent's own directory.
    Node,
    /// The one with the images.
    Image,
    /// The one with the writable layers.
    Container,
}

/// A name that is not one of the signals.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unsupported eviction signal {name}: write one of {}", Signal::NAMES.join(", "))]
#[non_exhaustive]
pub struct UnknownSignal {
    /// The given name, cut to 80 characters.
    pub name: String,
}

// === impl Signal ===

impl Signal {
    /// The names of all signals, in the order of [`ALL`](Self::ALL).
    pub const NAMES: [&'static str; Self::COUNT] = {
        let mut names = [""; Self::COUNT];
        let mut index = 0;
        while index < Self::COUNT {
            names[index] = Self::ROWS[index].name;
            index += 1;
        }
        names
    };

    /// The name as the configuration writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The resource that the signal measures.
    #[must_use]
    pub const fn resource(self) -> Resource {
        self.row().resource
    }

    /// The signals that raise this condition.
    pub(crate) fn of(condition: PressureCondition) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |signal| signal.condition() == condition)
    }

    /// The node condition that the signal raises.
    #[must_use]
    pub const fn condition(self) -> PressureCondition {
        self.resource().row().condition
    }

    /// The signal whose threshold in the configuration holds for this one; none for `containerfs`, whose threshold is
    /// that of the file system with the writable layers.
    #[must_use]
    pub const fn configured_as(self) -> Option<Self> {
        self.row().configured_as
    }

    /// The file system that the signal measures, if any.
    #[must_use]
    pub const fn file_system(self) -> Option<FileSystem> {
        match self.usage() {
            PodUsage::OnDisk(file_system, _) => Some(file_system),
            PodUsage::Figure(_) => None,
        }
    }

    /// The first signal of each resource, which every node measures by itself.
    pub fn first_of_each_resource() -> impl Iterator<Item = Self> {
        let first = |of: Resource| Self::ALL.into_iter().find(|signal| signal.resource() == of);
        Self::ALL.into_iter().filter(move |signal| first(signal.resource()) == Some(*signal))
    }

    /// The signal's index in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// What is available according to the node's figures; none if it was not measured, or if the node has none of it,
    /// such as inodes that are made as needed: it would be short for ever.
    pub(crate) fn available(
        self,
        node: &NodeStats,
        counted: MemoryAvailable,
    ) -> Option<Observation> {
        (self.row().available)(node, counted).filter(|observed| observed.capacity > 0)
    }

    pub(crate) const fn usage(self) -> PodUsage {
        self.row().usage
    }

    const fn row(self) -> &'static SignalRow {
        const ROWS: &[SignalRow] = &Signal::ROWS;
        &ROWS[self.index()]
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(name: &str) -> Result<Self, UnknownSignal> {
        let found = Self::ALL.into_iter().find(|signal| signal.as_str() == name);
        found.ok_or_else(|| UnknownSignal { name: name.chars().take(80).collect() })
    }
}

// === impl Resource ===

impl Resource {
    /// The name as messages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The unit of its amounts.
    #[must_use]
    pub const fn unit(self) -> Unit {
        self.row().unit
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
