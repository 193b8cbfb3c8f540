//! The faults, what the node does meanwhile, and which of them can meet.

use std::fmt;

use super::Runtime;
use crate::Suite;

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
    /// An operator has drained the node, which stays up.
    Drained,
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
    /// containerd stands still for a while (SIGSTOP, SIGCONT): it takes calls and answers none.
    ContainerdHangs,
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
    /// A shutdown is called off: one that was scheduled, or one that is under way (`shutdown -c`; where
    /// logind cannot do that, by its own failure to carry it out).
    Cancel,
    /// Somebody else asks logind for a reboot while the node is being powered off.
    SecondShutdown,
    /// Somebody goes past logind while it waits: `systemctl start poweroff.target`.
    ShutdownPastLogind,
    /// `systemctl reload winddown`, with another configuration.
    Reload,
    /// The manifest of a pod that runs can no longer be read, and the agent is killed: the next one
    /// knows that pod from the runtime only.
    ManifestBroken,
    /// A notice that the node ends comes, and is withdrawn.
    NoticeWithdrawn,
    /// Another package wants logind to wait for longer than winddown does.
    OtherDelay,
}

// === impl Phase ===

impl Phase {
    /// All of them, in the order of a node's life.
    pub const ALL: [Self; 7] = [
        Self::Idle,
        Self::Start,
        Self::Steady,
        Self::Preemption,
        Self::Eviction,
        Self::Drained,
        Self::Shutdown,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Start => "start of pods",
            Self::Steady => "steady",
            Self::Preemption => "preemption",
            Self::Eviction => "eviction",
            Self::Drained => "drained",
            Self::Shutdown => "shutdown",
        })
    }
}

// === impl Fault ===

impl Fault {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::AgentKilled,
        Self::AgentHangs,
        Self::DbusRestarted,
        Self::LogindRestarted,
        Self::ContainerdKilled,
        Self::ContainerdStopped,
        Self::ContainerdRestarted,
        Self::ContainerdHangs,
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
        Self::ManifestBroken,
        Self::NoticeWithdrawn,
        Self::OtherDelay,
    ];

    /// Whether it can strike in this phase of a node with this runtime.
    #[must_use]
    pub fn strikes(self, phase: Phase, runtime: Runtime, suite: Suite) -> bool {
        match self {
            // logind of systemd 257 does not come back to a bus that was restarted, whoever runs on the
            // node, and loses the shutdown that it was asked for.
            Self::DbusRestarted => suite == Suite::Bookworm,
            Self::SecondShutdown | Self::ShutdownPastLogind => phase == Phase::Shutdown,
            Self::ContainerdKilled
            | Self::ContainerdStopped
            | Self::ContainerdRestarted
            | Self::ContainerdHangs => runtime == Runtime::Containerd,
            Self::ApiDown => runtime == Runtime::Cluster,
            // The next agent knows of a drain from the disk, which another fault may have filled.
            Self::AgentKilled => phase != Phase::Drained,
            // Elsewhere the pods of the manifest run, and come back, or there are none yet.
            Self::ManifestBroken => matches!(phase, Phase::Steady | Phase::Shutdown),
            // Pods that a notice ends would come back in the middle of the others' stories.
            Self::NoticeWithdrawn => matches!(phase, Phase::Idle | Phase::Drained),
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
        let containerd = [
            Self::ContainerdKilled,
            Self::ContainerdStopped,
            Self::ContainerdRestarted,
            Self::ContainerdHangs,
        ];
        let disk = [Self::StateFull, Self::DiskHangs];
        let clock = [Self::ClockForward, Self::ClockBack];
        let other_way = [Self::SecondShutdown, Self::ShutdownPastLogind];
        // With the first shutdown taken back, the second is one that somebody wants.
        let takes_back = [Self::Cancel, Self::LogindRestarted, Self::DbusRestarted];
        // Past logind systemd starts nothing again: an agent that is killed has had its chance, and
        // benches/reliability.md says so.
        let past = [Self::ShutdownPastLogind];
        self != other
            && !is(&containerd, &containerd)
            && !is(&disk, &disk)
            && !is(&clock, &clock)
            && !is(&other_way, &other_way)
            && !is(&other_way, &takes_back)
            && !is(&past, &[Self::AgentKilled, Self::ManifestBroken])
            // Both of these write to /etc.
            && !is(&[Self::EtcReadOnly], &[Self::ManifestBroken, Self::OtherDelay])
            // A pod without a manifest does not come back.
            && !is(&takes_back, &[Self::ManifestBroken])
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

    /// Whether it ends the agent at once.
    pub(super) fn kills_the_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::ManifestBroken)
    }

    /// Whether the lock cannot be taken while it lasts.
    pub(super) fn keeps_the_lock_away(self) -> bool {
        matches!(
            self,
            Self::AgentKilled
                | Self::AgentHangs
                | Self::ManifestBroken
                | Self::DbusRestarted
                | Self::LogindRestarted
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
            Self::ContainerdHangs => "containerd hangs",
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
            Self::ManifestBroken => "manifest broken, agent killed",
            Self::NoticeWithdrawn => "notice withdrawn",
            Self::OtherDelay => "another package's delay",
        })
    }
}
