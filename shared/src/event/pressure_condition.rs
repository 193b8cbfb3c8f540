//! The pressure conditions of a node: a table. Whatever the kubelet reports too has its texts, byte for byte.

use std::fmt;

/// The texts of a condition in the node's status and Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConditionText {
    /// `reason` of the condition.
    pub reason: &'static str,
    /// `message` of the condition.
    pub message: &'static str,
    /// `reason` of the Event that reports the transition.
    pub event: &'static str,
}

/// Defines the conditions from their rows: the type, the taint, and the texts while it holds and while it does not.
macro_rules! conditions {
    ($($(#[doc = $doc:literal])+ $condition:ident = $name:literal, $taint:expr, $on:expr, $off:expr;)+) => {
        /// A pressure condition of the node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum PressureCondition {
            $($(#[doc = $doc])+ $condition,)+
        }

        impl PressureCondition {
            /// The number of conditions.
            pub const COUNT: usize = Self::ALL.len();

            /// All conditions, in the order in which they are reported.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$condition),+];

            /// The condition's `type`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$condition => $name,)+
                }
            }

            /// The taint that a BestEffort pod must tolerate to start while it holds; with none, no pod may start.
            #[must_use]
            pub const fn tolerated(self) -> Option<&'static str> {
                match self {
                    $(Self::$condition => $taint,)+
                }
            }

            /// Its texts.
            #[must_use]
            pub const fn text(self, on: bool) -> ConditionText {
                match self {
                    $(Self::$condition => if on { $on } else { $off },)+
                }
            }
        }
    };
}

conditions! {
    /// `MemoryPressure`.
    Memory = "MemoryPressure", Some("node.kubernetes.io/memory-pressure"),
        ConditionText {
            reason: "KubeletHasInsufficientMemory",
            message: "kubelet has insufficient memory available",
            event: "NodeHasInsufficientMemory",
        },
        ConditionText {
            reason: "KubeletHasSufficientMemory",
            message: "kubelet has sufficient memory available",
            event: "NodeHasSufficientMemory",
        };
    /// `DiskPressure`.
    Disk = "DiskPressure", None,
        ConditionText {
            reason: "KubeletHasDiskPressure",
            message: "kubelet has disk pressure",
            event: "NodeHasDiskPressure",
        },
        ConditionText {
            reason: "KubeletHasNoDiskPressure",
            message: "kubelet has no disk pressure",
            event: "NodeHasNoDiskPressure",
        };
    /// `PIDPressure`.
    Pid = "PIDPressure", None,
        ConditionText {
            reason: "KubeletHasInsufficientPID",
            message: "kubelet has insufficient PID available",
            event: "NodeHasInsufficientPID",
        },
        ConditionText {
            reason: "KubeletHasSufficientPID",
            message: "kubelet has sufficient PID available",
            event: "NodeHasSufficientPID",
        };
}

impl fmt::Display for PressureCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
