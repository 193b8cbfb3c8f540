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
    /// What happens to a service of the node.
    Of(Service, Fate),
    /// The API server is unreachable for a while.
    ApiDown,
    /// The disk with the agent's state is completely full.
    StateFull,
    /// The disk with the agent's state blocks all writes for a while.
    DiskHangs,
    /// The file system with the journal is completely full.
    JournalFull,
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

/// A service of the node that winddown, or the node, depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// D-Bus.
    Dbus,
    /// logind.
    Logind,
    /// journald, which reads what the agent logs.
    Journald,
    /// containerd.
    Containerd,
}

/// What happens to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// `kill -9` of its main process, followed by a start.
    Killed,
    /// It is stopped for a while.
    Stopped,
    /// `systemctl restart`.
    Restarted,
    /// Its main process is suspended for a while (SIGSTOP, SIGCONT): it accepts calls but does not answer.
    Hangs,
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
    pub const ALL: [Self; 28] = [
        Self::AgentKilled,
        Self::AgentHangs,
        Self::Of(Service::Dbus, Fate::Killed),
        Self::Of(Service::Dbus, Fate::Restarted),
        Self::Of(Service::Dbus, Fate::Hangs),
        Self::Of(Service::Logind, Fate::Killed),
        Self::Of(Service::Logind, Fate::Restarted),
        Self::Of(Service::Logind, Fate::Hangs),
        Self::Of(Service::Journald, Fate::Killed),
        Self::Of(Service::Journald, Fate::Hangs),
        Self::Of(Service::Containerd, Fate::Killed),
        Self::Of(Service::Containerd, Fate::Stopped),
        Self::Of(Service::Containerd, Fate::Restarted),
        Self::Of(Service::Containerd, Fate::Hangs),
        Self::ApiDown,
        Self::StateFull,
        Self::DiskHangs,
        Self::JournalFull,
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
        let is_taken_back = phase == Phase::Shutdown && self.takes_back();
        if runtime == Runtime::Companion && (is_taken_back || self == Self::ManifestBroken) {
            // No kubelet starts the pods again, nor reads their manifests.
            return false;
        }
        match self {
            // logind of systemd 257 does not reconnect to another bus, whatever runs on the node, and loses a
            // requested shutdown.
            Self::Of(Service::Dbus, Fate::Killed | Fate::Restarted) => suite == Suite::Bookworm,
            Self::Of(Service::Containerd, _) => runtime.has_containers(),
            Self::SecondShutdown | Self::ShutdownPastLogind => phase == Phase::Shutdown,
            Self::ApiDown => runtime.has_api(),
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
        let each = [(self, other), (other, self)];
        let is = |one: &dyn Fn(Self) -> bool, two: &dyn Fn(Self) -> bool| {
            each.into_iter().any(|(this, that)| one(this) && two(that))
        };
        let any = |of: &'static [Self]| move |fault: Self| of.contains(&fault);
        let disk = any(&[Self::StateFull, Self::DiskHangs]);
        let clock = any(&[Self::ClockForward, Self::ClockBack]);
        let other_way = any(&[Self::SecondShutdown, Self::ShutdownPastLogind]);
        let past = any(&[Self::ShutdownPastLogind]);
        self != other
            && (self.service().is_none() || self.service() != other.service())
            && !is(&disk, &disk)
            && !is(&clock, &clock)
            && !is(&other_way, &other_way)
            // If the first shutdown is cancelled, the second one is wanted.
            && !is(&other_way, &Self::takes_back)
            // Once logind is bypassed, systemd restarts nothing: an agent that is killed has had its chance, as
            // tests/bench/reliability.md says.
            && !is(&past, &Self::kills_the_agent)
            && !is(&past, &|fault| fault.service() == Some(Service::Containerd))
            // Both of these write to /etc.
            && !is(&any(&[Self::EtcReadOnly]), &any(&[Self::ManifestBroken, Self::OtherDelay]))
            // SIGHUP kills a logind that systemd is only about to start, whoever sends it.
            && !is(&any(&[Self::OtherDelay]), &|fault| fault.service() == Some(Service::Logind))
            // A pod without a manifest does not come back.
            && !is(&Self::takes_back, &any(&[Self::ManifestBroken]))
            // The agent says in the journal that it lost the report, and logind that it gave up the shutdown.
            && !is(&any(&[Self::JournalFull]), &any(&[Self::StateFull, Self::Cancel]))
    }

    /// The service that the fault strikes. Without room for a journal, journald does not even start.
    #[must_use]
    pub fn service(self) -> Option<Service> {
        match self {
            Self::Of(service, _) => Some(service),
            Self::JournalFull => Some(Service::Journald),
            _ => None,
        }
    }

    /// Whether a shutdown in progress may be cancelled: what is restarted makes logind forget it.
    pub(super) fn takes_back(self) -> bool {
        match self {
            Self::Of(service, fate) => service.carries_the_lock() && fate != Fate::Hangs,
            _ => self == Self::Cancel,
        }
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
        match self {
            Self::Of(service, _) => service.carries_the_lock(),
            _ => self == Self::AgentHangs || self.kills_the_agent(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Of(service, fate) => return write!(f, "{} {}", service.name(), fate.name()),
            Self::AgentKilled => "agent killed",
            Self::AgentHangs => "agent hangs",
            Self::ApiDown => "API server down",
            Self::StateFull => "state directory full",
            Self::DiskHangs => "disk hangs",
            Self::JournalFull => "journal's disk full",
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
        };
        f.write_str(text)
    }
}

// === impl Service ===

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Dbus => "dbus",
            Self::Logind => "logind",
            Self::Journald => "journald",
            Self::Containerd => "containerd",
        }
    }

    /// Whether no lock can be had while it is away.
    pub(super) fn carries_the_lock(self) -> bool {
        matches!(self, Self::Dbus | Self::Logind)
    }

    /// The unit of systemd.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Dbus => "dbus",
            Self::Logind => "systemd-logind",
            Self::Journald => "systemd-journald",
            Self::Containerd => "containerd",
        }
    }
}

// === impl Fate ===

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Restarted => "restarted",
            Self::Hangs => "hangs",
        }
    }
}
