//! The settings that divide the time before a shutdown.

use std::time::Duration;

/// The settings for the time and order of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// The grace periods, in the kubelet's fields.
    pub periods: ShutdownPeriods,
    /// `shutdownOrder`: how pods are grouped. With groups configured by priority it is always
    /// [`ShutdownOrder::Priority`].
    pub order: ShutdownOrder,
    /// `shutdownEndpointDrainPeriod`: how long pods are not ready before the first SIGTERM. In
    /// addition to the groups' time, and at most as long; 0 turns it off.
    pub endpoint_drain: Duration,
    /// `shutdownReserve`: the time reserved at the end for the report and the last status; at most
    /// 5 min.
    pub reserve: Duration,
    /// `rebootInPlace`: the namespaces whose pods may stay while the node reboots; each only once.
    pub in_place: Vec<InPlaceNamespace>,
}

/// How pods are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownOrder {
    /// By role: ordinary pods, system pods, the node's own, control plane, etcd.
    Role,
    /// By `spec.priority`, as in the kubelet.
    Priority,
}

/// How the time before a shutdown is divided, in either of the kubelet's two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownPeriods {
    /// `shutdownGracePeriod` and the part of it that is reserved for critical pods. Each is 0, or 1
    /// s to 24 h; `critical` is at most `total`. A `total` of 0 turns graceful shutdown off.
    Total {
        /// The time for all pods.
        total: Duration,
        /// The final part of it, for critical pods only.
        critical: Duration,
    },
    /// `shutdownGracePeriodByPodPriority`: ascending, without duplicate priorities, at most 24 h in total.
    ByPriority(Vec<PriorityPeriod>),
}

/// One entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The group's time, in whole seconds.
    pub period: Duration,
}

/// One entry of `rebootInPlace`: pods of a namespace that may stay while the node reboots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlaceNamespace {
    /// The namespace.
    pub namespace: String,
    /// Whether they may also keep running through a soft-reboot.
    pub survive: bool,
}

/// One entry of `shutdownGuard`: pods of a namespace that may block shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedNamespace {
    /// The namespace.
    pub namespace: String,
    /// The longest time for which one pod may block them; 1 s to 24 h.
    pub timeout: Duration,
}

/// 30 s, of which 10 s are for critical pods. This nearly covers the default grace period of 30 s,
/// and users reach for the power switch if a power-off hangs for longer.
impl Default for ShutdownPeriods {
    fn default() -> Self {
        Self::Total { total: Duration::from_secs(30), critical: Duration::from_secs(10) }
    }
}

/// [`ShutdownPeriods::default`], ordered by role.
impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { order: ShutdownOrder::Role, ..Self::from(ShutdownPeriods::default()) }
    }
}

/// Configured periods, in the kubelet's order.
impl From<ShutdownPeriods> for ShutdownSettings {
    fn from(periods: ShutdownPeriods) -> Self {
        Self {
            periods,
            order: ShutdownOrder::Priority,
            endpoint_drain: Duration::ZERO,
            reserve: Duration::from_secs(2),
            in_place: Vec::new(),
        }
    }
}

// === impl ShutdownSettings ===

impl ShutdownSettings {
    /// Returns the total time of all groups; zero means that graceful shutdown is off.
    pub fn total(&self) -> Duration {
        self.periods.total()
    }
}

// === impl ShutdownPeriods ===

impl ShutdownPeriods {
    /// Returns the total time of all groups; zero means that graceful shutdown is off.
    pub fn total(&self) -> Duration {
        match self {
            Self::Total { total, .. } => *total,
            Self::ByPriority(groups) => groups.iter().map(|group| group.period).sum(),
        }
    }
}
