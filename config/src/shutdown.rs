//! How the time before a shutdown is shared out.

use std::time::Duration;

/// Everything about a shutdown's time and order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// The kubelet's fields.
    pub periods: ShutdownPeriods,
    /// `shutdownOrder`: what puts pods into groups. With groups of configured priorities it is
    /// always [`ShutdownOrder::Priority`].
    pub order: ShutdownOrder,
    /// `shutdownEndpointDrainPeriod`: how long pods are not ready before the first SIGTERM. Beside
    /// the groups' time, and at most as long; 0 is off.
    pub endpoint_drain: Duration,
    /// `shutdownReserve`: what is kept back at the end for the report and the last status; at most
    /// 5 min.
    pub reserve: Duration,
    /// `rebootInPlace`: namespaces whose pods may stay while the node reboots; each once.
    pub in_place: Vec<InPlaceNamespace>,
}

/// What puts pods into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownOrder {
    /// What a pod is for: ordinary pods, system pods, the node's own, control plane, etcd.
    Role,
    /// `spec.priority`, as the kubelet does.
    Priority,
}

/// How the time before a shutdown is shared out, in either of the kubelet's two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownPeriods {
    /// `shutdownGracePeriod` and the part of it kept for critical pods. `total` 0 is off.
    /// 1 s to 24 h each, `critical` at most `total`.
    Total {
        /// For all pods.
        total: Duration,
        /// The end of it, for critical pods only.
        critical: Duration,
    },
    /// `shutdownGracePeriodByPodPriority`, ascending, no priority twice, at most 24 h together.
    ByPriority(Vec<PriorityPeriod>),
}

/// One entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityPeriod {
    /// The lowest priority of the group's pods.
    pub priority: i32,
    /// The group's time; whole seconds.
    pub period: Duration,
}

/// One entry of `rebootInPlace`: pods of a namespace that may stay while the node reboots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlaceNamespace {
    /// The namespace.
    pub namespace: String,
    /// They may run on through a soft-reboot, too.
    pub survive: bool,
}

/// One entry of `shutdownGuard`: pods of a namespace that may hold shutdowns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedNamespace {
    /// The namespace.
    pub namespace: String,
    /// The longest time for one pod; 1 s to 24 h.
    pub timeout: Duration,
}

/// 30 s, of which 10 s for critical pods: a pod's own default grace of 30 s is nearly all there,
/// and a power-off that hangs for longer is what makes people reach for the power switch.
impl Default for ShutdownPeriods {
    fn default() -> Self {
        Self::Total { total: Duration::from_secs(30), critical: Duration::from_secs(10) }
    }
}

/// [`ShutdownPeriods::default`], in the order of roles.
impl Default for ShutdownSettings {
    fn default() -> Self {
        Self { order: ShutdownOrder::Role, ..Self::from(ShutdownPeriods::default()) }
    }
}

/// Configured periods: the kubelet's order.
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
    /// The time all groups together may take; zero is off.
    pub fn total(&self) -> Duration {
        self.periods.total()
    }
}

// === impl ShutdownPeriods ===

impl ShutdownPeriods {
    /// The time all groups together may take; zero is off.
    pub fn total(&self) -> Duration {
        match self {
            Self::Total { total, .. } => *total,
            Self::ByPriority(groups) => groups.iter().map(|group| group.period).sum(),
        }
    }
}
