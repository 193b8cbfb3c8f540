//! The set of pressure conditions that hold.

use std::fmt;

use winddown_shared::PressureCondition;

/// The set of pressure conditions that hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conditions(u8);

// === impl Conditions ===

impl Conditions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// All conditions.
    pub const ALL: Self = Self((1 << PressureCondition::COUNT) - 1);

    /// Adds a condition.
    pub fn insert(&mut self, condition: PressureCondition) {
        self.0 |= 1 << condition as u8;
    }

    /// Whether a condition holds.
    #[must_use]
    pub const fn contains(self, condition: PressureCondition) -> bool {
        self.0 & (1 << condition as u8) != 0
    }

    /// Whether a condition holds in both sets.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The conditions that hold in one of the two sets or in both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no condition holds.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The conditions that hold, in the order in which they are reported.
    pub fn iter(self) -> impl Iterator<Item = PressureCondition> {
        PressureCondition::ALL.into_iter().filter(move |condition| self.contains(*condition))
    }

    /// The conditions that hold in exactly one of the two sets.
    #[must_use]
    pub const fn changed(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl From<PressureCondition> for Conditions {
    fn from(condition: PressureCondition) -> Self {
        Self(1 << condition as u8)
    }
}

impl FromIterator<PressureCondition> for Conditions {
    fn from_iter<I: IntoIterator<Item = PressureCondition>>(conditions: I) -> Self {
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
