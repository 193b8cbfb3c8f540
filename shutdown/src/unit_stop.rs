//! The way down that the login manager does not announce: the service manager stops the agent's unit.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{InhibitorState, ShutdownKind, WayDown};

/// The machine goes down, and the service manager stops the agent's unit. Nothing calls that off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitStop {
    /// How the machine goes down.
    pub kind: ShutdownKind,
    /// When the unit was asked to stop; the budget counts from here.
    pub since: Instant,
    /// How long the service manager waits for the agent.
    pub delay: Duration,
    /// Whether that is less than the agent wants, because the way down has a limit.
    pub is_limited: bool,
    /// Whether the login manager had announced the shutdown. It waits no more, and the stop is part of its shutdown;
    /// otherwise the stop is one of its own.
    pub is_announced: bool,
}

// === impl UnitStop ===

impl UnitStop {
    /// What the units that are stopped after the agent keep of a limited time, or half of that if it is short.
    pub const AFTERWARDS: Duration = Duration::from_secs(30);

    /// Counts as a shutdown of its own, which no login manager has.
    pub(crate) const EPOCH: u64 = u64::MAX;

    /// The stop, at `since`, of an agent that wants this long, on this `way` down. Without a limit nobody counts, and its
    /// time begins now.
    pub fn new(way: WayDown, since: Instant, wanted: Duration, is_announced: bool) -> Self {
        let delay = way.limit.map_or(wanted, |limit| Self::delay_of(limit, wanted));
        let is_limited = delay < wanted;
        let since = if is_limited { since } else { Instant::now() };
        Self { kind: way.kind, since, delay, is_limited, is_announced }
    }

    /// How long a service manager that waits for all units together no longer than `limit` waits for an agent that wants
    /// this long.
    pub fn delay_of(limit: Duration, wanted: Duration) -> Duration {
        wanted.min(limit.saturating_sub(Self::AFTERWARDS.min(limit / 2)))
    }

    /// What gives the agent less time than it wants, if anything does.
    pub(crate) fn limited_by(&self) -> Option<String> {
        let target = match self.kind {
            ShutdownKind::PowerOff => "poweroff.target",
            ShutdownKind::Halt => "halt.target",
            ShutdownKind::Reboot => "reboot.target",
            ShutdownKind::Kexec => "kexec.target",
            ShutdownKind::SoftReboot => "soft-reboot.target",
            ShutdownKind::Unknown => "the target",
        };
        self.is_limited.then(|| format!("JobTimeoutSec of {target}"))
    }

    /// The shutdown, in place of the one that the login manager has not announced, or announces too late; or else its own.
    pub(crate) fn instead_of(self, login: InhibitorState) -> InhibitorState {
        let mut state = login;
        if self.is_announced && state.preparing {
            return state;
        }
        (state.preparing, state.epoch, state.since) = (true, Self::EPOCH, Some(self.since));
        (state.kind, state.delay_set_by) = (self.kind, None);
        state
    }
}

#[test]
fn a_limit_of_the_way_down_gives_the_agent_less_and_leaves_some_of_it_to_other_units() {
    let of = |limit, wanted| {
        UnitStop::delay_of(Duration::from_secs(limit), Duration::from_secs(wanted)).as_secs()
    };
    // systemd's half hour.
    assert_eq!((of(1800, 90), of(1800, 3600)), (90, 1770));
    assert_eq!((of(120, 300), of(20, 300), of(0, 300)), (90, 10, 0));
}
