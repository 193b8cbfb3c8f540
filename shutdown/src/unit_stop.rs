//! The way down that the login manager does not announce: the service manager stops the agent's unit.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{InhibitorState, ShutdownKind};

/// The machine goes down, and the service manager stops the agent's unit, without a word of the login manager. Nothing
/// calls that off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitStop {
    /// How the machine goes down.
    pub kind: ShutdownKind,
    /// When the unit was asked to stop; the budget counts from here.
    pub since: Instant,
    /// How long the service manager waits for the agent.
    pub delay: Duration,
}

// === impl UnitStop ===

impl UnitStop {
    /// Counts as a shutdown of its own, which no login manager has.
    const EPOCH: u64 = u64::MAX;

    /// The shutdown, in place of the one that the login manager has not announced, or announces too late.
    pub(crate) fn instead_of(self, login: InhibitorState) -> InhibitorState {
        let Self { kind, since, delay } = self;
        let mut state = login;
        (state.preparing, state.epoch, state.since) = (true, Self::EPOCH, Some(since));
        (state.kind, state.delay, state.delay_set_by) = (kind, Some(delay), None);
        state
    }
}
