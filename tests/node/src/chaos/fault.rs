//! The faults, what the node does meanwhile, and which of them can meet.

use std::fmt;

use super::Runtime;

/// What the node does when the faults strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The agent runs and has no pods. They come afterwards.
    Idle,
    /// Agent and pods are being started.
    Start,
    /// All pods run.
    Steady,
    /// A critical pod came to a full node, and others are ended for it.
    Preemption,
    /// A pod takes the node's memory and is ended for it.
    Eviction,
    /// The node goes down.
    Shutdown,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of the agent.
    AgentKilled,
    /// The agent stands still for a while (SIGSTOP, SIGCONT).
    AgentHangs,
    /// `systemctl restart dbus`.
    DbusRestarted,
    /// `systemctl restart systemd-logind`.
    LogindRestarted,
    /// `kill -9` of containerd, and its start.
    ContainerdKilled,
    /// containerd is stopped for a while.
    ContainerdStopped,
    /// `systemctl restart containerd`.
    ContainerdRestarted,
    /// The API server cannot be reached for a while.
    ApiDown,
    /// Not a byte is left where the agent keeps its state.
    StateFull,
    /// The disk with the agent's state takes no write for a while.
    DiskHangs,
    /// `/etc` cannot be written.
    EtcReadOnly,
    /// The wall clock goes forward.
    ClockForward,
    /// The wall clock goes back.
    ClockBack,
    /// A shutdown is called off: one that was scheduled, or, once one is under way, by logind's own
    /// failure to carry it out.
    Cancel,
    /// Somebody else asks logind for a reboot while the node is being powered off.
    SecondShutdown,
    /// Somebody goes past logind while it waits: `systemctl start poweroff.target`.
    ShutdownPastLogind,
    /// `systemctl reload winddown`, with another configuration.
    Reload,
}

// === impl Phase ===

impl Phase {
    /// All of them, in the order of a node's life.
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Start, Self::Steady, Self::Preemption, Self::Eviction, Self::Shutdown];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Start => "start of pods",
            Self::Steady => "steady",
            Self::Preemption => "preemption",
            Self::Eviction => "eviction",
            Self::Shutdown => "shutdown",
        })
    }
}

// === impl Fault ===

impl Fault {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::AgentKilled,
        Self::AgentHangs,
        Self::DbusRestarted,
        Self::LogindRestarted,
        Self::ContainerdKilled,
        Self::ContainerdStopped,
        Self::ContainerdRestarted,
        Self::ApiDown,
        Self::StateFull,
        Self::DiskHangs,
        Self::EtcReadOnly,
        Self::ClockForward,
        Self::ClockBack,
        Self::Cancel,
        Self::SecondShutdown,
        Self::ShutdownPastLogind,
        Self::Reload,
    ];

    /// Whether it can strike in this phase of a node with this runtime.
    #[must_use]
    pub fn strikes(self, phase: Phase, runtime: Runtime) -> bool {
        match self {
            Self::SecondShutdown | Self::ShutdownPastLogind => phase == Phase::Shutdown,
            Self::ContainerdKilled | Self::ContainerdStopped | Self::ContainerdRestarted => {
                runtime == Runtime::Containerd
            }
            Self::ApiDown => runtime == Runtime::Cluster,
            _ => true,
        }
    }

    /// Whether both may strike in one schedule. A fault strikes once.
    #[must_use]
    pub fn goes_with(self, other: Self) -> bool {
        let is = |one: &[Self], two: &[Self]| {
            (one.contains(&self) && two.contains(&other))
                || (one.contains(&other) && two.contains(&self))
        };
        let containerd =
            [Self::ContainerdKilled, Self::ContainerdStopped, Self::ContainerdRestarted];
        let disk = [Self::StateFull, Self::DiskHangs];
        let clock = [Self::ClockForward, Self::ClockBack];
        let other_way = [Self::SecondShutdown, Self::ShutdownPastLogind];
        // With the first shutdown taken back, the second is one that somebody wants.
        let takes_back = [Self::Cancel, Self::LogindRestarted, Self::DbusRestarted];
        // Past logind systemd starts nothing again: an agent that is killed has had its chance, and
        // docs/reliability.md says so.
        let past = [Self::ShutdownPastLogind];
        self != other
            && !is(&containerd, &containerd)
            && !is(&disk, &disk)
            && !is(&clock, &clock)
            && !is(&other_way, &other_way)
            && !is(&other_way, &takes_back)
            && !is(&past, &[Self::AgentKilled])
            && !is(&past, &containerd)
    }

    /// Whether the agent's state has to be on a disk of its own for it.
    pub(super) fn needs_a_disk(self) -> bool {
        matches!(self, Self::StateFull | Self::DiskHangs)
    }

    /// Whether the agent's clock has to be one that can be put forward and back.
    pub(super) fn needs_a_clock(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack)
    }

    /// Whether the lock cannot be taken while it lasts.
    pub(super) fn keeps_the_lock_away(self) -> bool {
        matches!(
            self,
            Self::AgentKilled | Self::AgentHangs | Self::DbusRestarted | Self::LogindRestarted
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentKilled => "agent killed",
            Self::AgentHangs => "agent hangs",
            Self::DbusRestarted => "dbus restarted",
            Self::LogindRestarted => "logind restarted",
            Self::ContainerdKilled => "containerd killed",
            Self::ContainerdStopped => "containerd stopped",
            Self::ContainerdRestarted => "containerd restarted",
            Self::ApiDown => "API server down",
            Self::StateFull => "state directory full",
            Self::DiskHangs => "disk hangs",
            Self::EtcReadOnly => "/etc read-only",
            Self::ClockForward => "clock goes forward",
            Self::ClockBack => "clock goes back",
            Self::Cancel => "shutdown called off",
            Self::SecondShutdown => "second shutdown",
            Self::ShutdownPastLogind => "shutdown past logind",
            Self::Reload => "reload",
        })
    }
}
