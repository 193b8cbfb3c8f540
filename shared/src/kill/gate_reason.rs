//! Reasons for which the node takes no new pods.

use std::fmt;

/// One owner's reason to admit no pods and, if it terminates pods, to show running ones as not ready.
///
/// Each owner adds and removes only its own reason: a gate closed for two stays closed when one of them is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GateReason {
    /// The agent has just started, and its state is not settled yet.
    Startup,
    /// The login manager is shutting the node down, or an agent of this boot was doing so.
    Shutdown,
    /// The service manager is stopping the agent's unit because the node goes down.
    UnitStop,
    /// A notice is in force: the node goes down at a certain time.
    Notice,
    /// An operator is draining the node, or has drained it.
    Drain,
}

/// A set of [`GateReason`]s.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GateReasons(u8);

// === impl GateReason ===

impl GateReason {
    /// All reasons, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Startup, Self::Shutdown, Self::UnitStop, Self::Notice, Self::Drain];
}

// === impl GateReasons ===

impl GateReasons {
    /// No reason.
    pub const NONE: Self = Self(0);

    /// Whether there is no reason at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `reason` is in the set.
    pub const fn contains(self, reason: GateReason) -> bool {
        self.0 & (1 << reason as u8) != 0
    }

    /// Adds (`true`) or removes (`false`) a reason; returns whether the set changed.
    pub const fn set(&mut self, reason: GateReason, holds: bool) -> bool {
        let (before, bit) = (self.0, 1_u8 << reason as u8);
        self.0 = if holds { before | bit } else { before & !bit };
        self.0 != before
    }

    /// The reasons, in the order of [`GateReason::ALL`].
    pub fn iter(self) -> impl Iterator<Item = GateReason> {
        GateReason::ALL.into_iter().filter(move |reason| self.contains(*reason))
    }
}

impl FromIterator<GateReason> for GateReasons {
    fn from_iter<T: IntoIterator<Item = GateReason>>(reasons: T) -> Self {
        let mut set = Self::NONE;
        for reason in reasons {
            set.set(reason, true);
        }
        set
    }
}

impl fmt::Debug for GateReasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_owner_removes_another_owner_keeps() {
        let mut set = GateReasons::NONE;
        assert!(set.is_empty() && !set.set(GateReason::Drain, false));
        assert!(set.set(GateReason::Drain, true) && !set.set(GateReason::Drain, true));
        assert!(set.set(GateReason::Notice, true));
        assert!(set.set(GateReason::Drain, false) && !set.contains(GateReason::Drain));
        assert_eq!(set.iter().collect::<Vec<_>>(), [GateReason::Notice]);
        assert_eq!(format!("{set:?}"), "{Notice}");
    }

    #[test]
    fn every_reason_has_a_place_of_its_own() {
        let all: GateReasons = GateReason::ALL.into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), GateReason::ALL);
        for reason in GateReason::ALL {
            let mut rest = all;
            assert!(rest.set(reason, false));
            assert_eq!(rest.iter().count(), GateReason::ALL.len() - 1, "{reason:?}");
        }
    }
}
