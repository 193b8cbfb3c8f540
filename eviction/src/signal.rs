//! What is watched, which resource it speaks of, and which condition of the node it raises.

use std::fmt;
use std::str::FromStr;

use crate::condition::Condition;

/// A resource of the node that can run short. The names are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory of the node.
    MemoryAvailable,
    /// Memory of the cgroup that all pods are in.
    AllocatableMemoryAvailable,
    /// Bytes of the agent's own file system.
    NodeFsAvailable,
    /// Its inodes.
    NodeFsInodesFree,
    /// Bytes of the file system with the images.
    ImageFsAvailable,
    /// Its inodes.
    ImageFsInodesFree,
    /// Bytes of the file system with the writable layers.
    ContainerFsAvailable,
    /// Its inodes.
    ContainerFsInodesFree,
    /// Tasks that can still be started.
    PidAvailable,
}

/// The resource behind a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Bytes of memory.
    Memory,
    /// Bytes of disk.
    EphemeralStorage,
    /// Inodes.
    Inodes,
    /// Tasks.
    Pids,
}

/// A file system the agent looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSystem {
    /// With the agent's own directory.
    Node,
    /// With the images.
    Image,
    /// With the writable layers.
    Container,
}

/// Why a pod is ended: the label of `kubelet_evictions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The node runs short.
    Signal(Signal),
    /// Tasks wait for memory although a little of it is left.
    MemoryPressure,
    /// A volume is larger than it may be.
    EmptyDirLimit,
    /// The pod has more on the disks than it may.
    PodLimit,
    /// A container has.
    ContainerLimit,
}

/// A name that is none of the nine signals.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unsupported eviction signal {name}: write one of {}", Signal::names())]
pub struct UnknownSignal {
    /// What was written.
    pub name: String,
}

// === impl Signal ===

impl Signal {
    /// How many there are.
    pub const COUNT: usize = 9;

    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// As the configuration writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// What is short.
    #[must_use]
    pub const fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                Resource::Inodes
            }
            Self::PidAvailable => Resource::Pids,
        }
    }

    /// The condition of the node that it raises.
    #[must_use]
    pub const fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::Memory,
            Resource::EphemeralStorage | Resource::Inodes => Condition::Disk,
            Resource::Pids => Condition::Pid,
        }
    }

    /// The file system it speaks of, if it does.
    #[must_use]
    pub const fn file_system(self) -> Option<FileSystem> {
        match self {
            Self::NodeFsAvailable | Self::NodeFsInodesFree => Some(FileSystem::Node),
            Self::ImageFsAvailable | Self::ImageFsInodesFree => Some(FileSystem::Image),
            Self::ContainerFsAvailable | Self::ContainerFsInodesFree => Some(FileSystem::Container),
            _ => None,
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
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
    /// As messages name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Cause ===

impl Cause {
    /// The label of the metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::MemoryPressure => "memoryPressure",
            Self::EmptyDirLimit => "emptydirfs.limit",
            Self::PodLimit => "ephemeralpodfs.limit",
            Self::ContainerLimit => "ephemeralcontainerfs.limit",
        }
    }

    /// What is short; none for a limit of the pod's own.
    #[must_use]
    pub const fn resource(self) -> Option<Resource> {
        match self {
            Self::Signal(signal) => Some(signal.resource()),
            Self::MemoryPressure => Some(Resource::Memory),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl serde::Serialize for Cause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
