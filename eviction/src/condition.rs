//! The pressure conditions of a node.

use std::fmt;

/// A pressure condition of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`.
    Disk,
    /// `PIDPressure`.
    Pid,
}

/// The set of pressure conditions that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conditions(u8);

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

// === impl Condition ===

impl Condition {
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

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Conditions ===

impl Conditions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// All conditions.
    pub const ALL: Self = Self((1 << Condition::COUNT) - 1);

    /// Adds a condition.
    pub fn insert(&mut self, condition: Condition) {
        self.0 |= 1 << condition as u8;
    }

    /// Whether a condition holds.
    #[must_use]
    pub const fn contains(self, condition: Condition) -> bool {
        self.0 & (1 << condition as u8) != 0
    }

    /// Whether a condition holds in both sets.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no condition holds.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The conditions that hold, in the order in which they are reported.
    pub fn iter(self) -> impl Iterator<Item = Condition> {
        Condition::ALL.into_iter().filter(move |condition| self.contains(*condition))
    }

    /// The conditions that hold in exactly one of the two sets.
    #[must_use]
    pub const fn changed(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl From<Condition> for Conditions {
    fn from(condition: Condition) -> Self {
        Self(1 << condition as u8)
    }
}

impl FromIterator<Condition> for Conditions {
    fn from_iter<I: IntoIterator<Item = Condition>>(conditions: I) -> Self {
        let mut all = Self::NONE;
        conditions.into_iter().for_each(|condition| all.insert(condition));
        all
    }
}

impl fmt::Display for Conditions {
    /// Formats the set as Go prints a list: `[MemoryPressure DiskPressure]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, condition) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(" ")?;
            }
            f.write_str(condition.as_str())?;
        }
        f.write_str("]")
    }
}
