//! Eviction signals, the resource behind each, and the node condition that it raises.

use std::fmt;
use std::str::FromStr;

use crate::condition::Condition;

/// An eviction signal: an available amount of the node that is watched. The names are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Available memory of the node.
    MemoryAvailable,
    /// Available memory of the cgroup that contains all pods.
    AllocatableMemoryAvailable,
    /// Available bytes on the agent's own file system.
    NodeFsAvailable,
    /// Free inodes on the agent's own file system.
    NodeFsInodesFree,
    /// Available bytes on the file system with the images.
    ImageFsAvailable,
    /// Free inodes on the file system with the images.
    ImageFsInodesFree,
    /// Available bytes on the file system with the writable layers.
    ContainerFsAvailable,
    /// Free inodes on the file system with the writable layers.
    ContainerFsInodesFree,
    /// The number of tasks that can still be started.
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

/// A file system that the agent measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileSystem {
    /// The one with the agent's own directory.
    Node,
    /// The one with the images.
    Image,
    /// The one with the writable layers.
    Container,
}

/// Why a pod is evicted: the label of `kubelet_evictions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The node is below a threshold on this signal.
    Signal(Signal),
    /// Tasks stall for memory, although some is left.
    MemoryPressure,
    /// An `emptyDir` volume exceeds its size limit.
    EmptyDirLimit,
    /// The pod exceeds its ephemeral storage limit.
    PodLimit,
    /// A container exceeds its ephemeral storage limit.
    ContainerLimit,
}

/// A name that is not one of the nine signals.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unsupported eviction signal {name}: write one of {}", Signal::names())]
pub struct UnknownSignal {
    /// The given name, cut to 80 characters.
    pub name: String,
}

// === impl Signal ===

impl Signal {
    /// The number of signals.
    pub const COUNT: usize = 9;

    /// All signals, in the order in which they are reported.
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

    /// The name as the configuration writes it.
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

    /// The resource that the signal measures.
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

    /// The node condition that the signal raises.
    #[must_use]
    pub const fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::Memory,
            Resource::EphemeralStorage | Resource::Inodes => Condition::Disk,
            Resource::Pids => Condition::Pid,
        }
    }

    /// The file system that the signal measures, if any.
    #[must_use]
    pub const fn file_system(self) -> Option<FileSystem> {
        match self {
            Self::NodeFsAvailable | Self::NodeFsInodesFree => Some(FileSystem::Node),
            Self::ImageFsAvailable | Self::ImageFsInodesFree => Some(FileSystem::Image),
            Self::ContainerFsAvailable | Self::ContainerFsInodesFree => Some(FileSystem::Container),
            _ => None,
        }
    }

    /// The signal's index in [`ALL`](Self::ALL).
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
    /// The name as messages write it.
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
    /// The value of the metric's label.
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

    /// The short resource; none for a limit of the pod's own.
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
