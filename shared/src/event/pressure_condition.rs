//! The pressure conditions of a node, with the kubelet's texts.

use std::fmt;

/// A pressure condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureCondition {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`.
    Disk,
    /// `PIDPressure`.
    Pid,
}

/// The texts of a condition in the node's status and Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionText {
    /// `reason` of the condition.
    pub reason: &'static str,
    /// `message` of the condition.
    pub message: &'static str,
    /// `reason` of the Event that reports the transition.
    pub event: &'static str,
}

// === impl PressureCondition ===

impl PressureCondition {
    /// The number of conditions.
    pub const COUNT: usize = 3;

    /// All conditions, in the order in which they are reported.
    pub const ALL: [Self; Self::COUNT] = [Self::Memory, Self::Disk, Self::Pid];

    /// The condition's `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// Its texts, byte for byte the kubelet's.
    #[must_use]
    pub const fn text(self, on: bool) -> ConditionText {
        let (reason, message, event) = match (self, on) {
            (Self::Memory, true) => (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ),
            (Self::Memory, false) => (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                "NodeHasSufficientMemory",
            ),
            (Self::Disk, true) => {
                ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure")
            }
            (Self::Disk, false) => (
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                "NodeHasNoDiskPressure",
            ),
            (Self::Pid, true) => (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                "NodeHasInsufficientPID",
            ),
            (Self::Pid, false) => (
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                "NodeHasSufficientPID",
            ),
        };
        ConditionText { reason, message, event }
    }
}

impl fmt::Display for PressureCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
