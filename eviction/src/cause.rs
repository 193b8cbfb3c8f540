//! Why a pod is evicted.

use std::fmt;

use crate::signal::{Resource, Signal};
use crate::unit::Unit;

/// Why a pod is evicted: the label of `kubelet_evictions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The node is below a threshold on this signal.
    Signal(Signal),
    /// Tasks stall for memory, although some is left.
    MemoryStall,
    /// An `emptyDir` volume exceeds its size limit.
    EmptyDirLimit,
    /// The pod exceeds its ephemeral storage limit.
    PodLimit,
    /// A container exceeds its ephemeral storage limit.
    ContainerLimit,
}

impl Cause {
    /// The number of causes.
    pub const COUNT: usize = Signal::COUNT + Self::OTHERS.len();

    /// The causes that are no signals.
    const OTHERS: [Self; 4] =
        [Self::MemoryStall, Self::EmptyDirLimit, Self::PodLimit, Self::ContainerLimit];

    /// The cause of this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let signals = Signal::ALL.into_iter().map(Self::Signal);
        signals.chain(Self::OTHERS).find(|cause| cause.as_str() == name)
    }

    /// The value of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::MemoryStall => "memoryPressure",
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
            Self::MemoryStall => Some(Resource::Memory),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => None,
        }
    }

    /// The unit of the amounts of a decision; none for a limit of the pod's own.
    #[must_use]
    pub fn unit(self) -> Option<Unit> {
        self.resource().map(Resource::unit)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
