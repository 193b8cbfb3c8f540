//! The faults, the phases in which they strike, and which of them can be combined.

use std::fmt;

use super::Runtime;
use crate::Suite;

/// What the node is doing when the faults strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The agent runs without pods, which are added afterwards.
    Idle,
    /// The agent and the pods are being started.
    Start,
    /// All pods run.
    Steady,
    /// A critical pod arrived at a full node, and other pods are preempted for it.
    Preemption,
    /// A pod takes the node's memory and is evicted.
    Eviction,
    /// An operator has drained the node, which stays up.
    Drained,
    /// The node is shutting down.
    Shutdown,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of the agent.
    AgentKilled,
    /// The agent is suspended for a while (SIGSTOP, SIGCONT).
    AgentHangs,
    /// `systemctl restart dbus`.
    DbusRestarted,
    /// `systemctl restart systemd-logind`.
    LogindRestarted,
    /// `kill -9` of containerd, followed by a start.
    ContainerdKilled,
    /// containerd is stopped for a while.
    ContainerdStopped,
    /// `systemctl restart containerd`.
    ContainerdRestarted,
    /// containerd is suspended for a while (SIGSTOP, SIGCONT): it accepts calls but does not answer.
    ContainerdHangs,
    /// The API server is unreachable for a while.
    ApiDown,
    /// The disk with the agent's state is completely full.
    StateFull,
    /// The disk with the agent's state blocks all writes for a while.
    DiskHangs,
    /// `/etc` is read-only.
    EtcReadOnly,
    /// The wall clock jumps forward.
    ClockForward,
    /// The wall clock jumps back.
    ClockBack,
    /// A shutdown is cancelled: a scheduled one, or one in progress (`shutdown -c`; if logind cannot do that, by making
    /// it fail to carry the shutdown out).
    Cancel,
    /// Another program asks logind for a reboot while the node is being powered off.
    SecondShutdown,
    /// A shutdown bypasses logind while it waits: `systemctl start poweroff.target`.
    ShutdownPastLogind,
    /// `systemctl reload winddown`, with a changed configuration.
    Reload,
    /// The manifest of a running pod becomes unreadable, and the agent is killed: the next agent knows the pod only
    /// from the runtime.
    ManifestBroken,
    /// A notice that the node will go away is given and withdrawn.
    NoticeWithdrawn,
    /// Another package makes logind wait for longer than winddown needs.
    OtherDelay,
}

// === impl Phase ===

impl Phase {
    /// All phases, in the order of a node's life.
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
    /// All faults.
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

    /// Whether the fault can strike in this phase of a node with this runtime and release.
    #[must_use]
    pub fn strikes(self, phase: Phase, runtime: Runtime, suite: Suite) -> bool {
        match self {
            // logind of systemd 257 does not reconnect to a restarted bus, whatever runs on the node, and loses a
            // requested shutdown.
            Self::DbusRestarted => suite == Suite::Bookworm,
            Self::SecondShutdown | Self::ShutdownPastLogind => phase == Phase::Shutdown,
            Self::ContainerdKilled
            | Self::ContainerdStopped
            | Self::ContainerdRestarted
            | Self::ContainerdHangs => runtime == Runtime::Containerd,
            Self::ApiDown => runtime == Runtime::Cluster,
            // The next agent learns of the drain from the disk, which another fault may have filled.
            Self::AgentKilled => phase != Phase::Drained,
            // In other phases, the pods of the manifest come back, or do not exist yet.
            Self::ManifestBroken => matches!(phase, Phase::Steady | Phase::Shutdown),
            // Pods that a notice stops would come back and disturb the other phases.
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
        // If the first shutdown is cancelled, the second one is wanted.
        let takes_back = [Self::Cancel, Self::LogindRestarted, Self::DbusRestarted];
        // Once logind is bypassed, systemd restarts nothing: an agent that is killed has had its chance, as
        // tests/bench/reliability.md says.
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

    /// Whether the fault needs the agent's state to be on its own disk.
    pub(super) fn needs_a_disk(self) -> bool {
        matches!(self, Self::StateFull | Self::DiskHangs)
    }

    /// Whether the fault needs the agent to use the settable clock.
    pub(super) fn needs_a_clock(self) -> bool {
        matches!(self, Self::ClockForward | Self::ClockBack)
    }

    /// Whether a later boot of the node would find something of the fault.
    pub(super) fn outlasts_a_boot(self) -> bool {
        self.needs_a_disk() || self.needs_a_clock() || self == Self::OtherDelay
    }

    /// Whether the fault kills the agent.
    pub(super) fn kills_the_agent(self) -> bool {
        matches!(self, Self::AgentKilled | Self::ManifestBroken)
    }

    /// Whether the lock cannot be acquired while the fault lasts.
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
            Self::Cancel => "shutdown cancelled",
            Self::SecondShutdown => "second shutdown",
            Self::ShutdownPastLogind => "shutdown past logind",
            Self::Reload => "reload",
            Self::ManifestBroken => "manifest broken, agent killed",
            Self::NoticeWithdrawn => "notice withdrawn",
            Self::OtherDelay => "another package's delay",
        })
    }
}
