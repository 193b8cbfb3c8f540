//! What the agent does to pods.

use std::fmt;

/// Something that ends pods, each for a reason of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// An operator terminates two pods, one of which ignores SIGTERM.
    Kill,
    /// Their manifests go, and come back.
    Removal,
    /// The node is drained, and admits pods again once all have exited.
    Drain,
    /// The node is drained, and the drain is called off while the first group is still terminating.
    DrainCalledOff,
    /// A notice from outside is in force until all pods have exited.
    Notice,
    /// A critical pod needs all processors, and leaves again.
    Preemption,
    /// The disk runs short until a pod has been evicted.
    Eviction,
    /// logind announces a shutdown and cannot carry it out.
    ShutdownCalledOff,
    /// The node is powered off.
    Shutdown,
}

impl Deed {
    /// Each deed after which the node stays up.
    pub const ON_A_NODE_THAT_STAYS: [Self; 8] = [
        Self::Kill,
        Self::Removal,
        Self::Drain,
        Self::DrainCalledOff,
        Self::Notice,
        Self::Preemption,
        Self::Eviction,
        Self::ShutdownCalledOff,
    ];

    /// The pods that it terminates.
    pub(super) fn victims(self) -> &'static [&'static str] {
        match self {
            Self::Kill | Self::Removal => &["web", "deaf"],
            Self::Preemption => &["web", "queue"],
            Self::Eviction => &["leaf"],
            Self::DrainCalledOff => &["web", "deaf", "leaf"],
            Self::Drain | Self::Notice | Self::ShutdownCalledOff | Self::Shutdown => {
                &["web", "deaf", "leaf", "queue", "agent"]
            }
        }
    }

    /// The pods whose end the deed waits for before it is undone.
    pub(super) fn waits_for(self) -> &'static [&'static str] {
        match self {
            // The other two of their group are still terminating.
            Self::DrainCalledOff => &["leaf"],
            _ => self.victims(),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Removal => "manifests removed",
            Self::Drain => "drain",
            Self::DrainCalledOff => "drain cancelled",
            Self::Notice => "notice",
            Self::Preemption => "preemption",
            Self::Eviction => "eviction",
            Self::ShutdownCalledOff => "shutdown cancelled",
            Self::Shutdown => "shutdown",
        })
    }
}
