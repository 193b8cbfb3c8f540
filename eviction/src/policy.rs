//! The eviction policy.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{FsLayout, Pod};

use crate::exemption::Exemption;
use crate::hook::HookRule;
use crate::observation::MemoryAvailable;
use crate::signal::Signal;
use crate::threshold::{
    IneffectiveThreshold, Threshold, ThresholdConfig, ThresholdValue, default_hard,
    with_allocatable, with_container_fs,
};

/// The rules for evicting pods when the node runs short.
///
/// ```
/// use winddown_eviction::{Policy, StaticPods};
///
/// let mut policy = Policy::default();
/// // As the kubelet does: no pod of a manifest is evicted.
/// policy.static_pods = StaticPods::Spared;
/// policy.transition_period = std::time::Duration::from_secs(60);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    configured: Vec<Threshold>,
    thresholds: Vec<Threshold>,
    layout: FsLayout,
    /// How long a condition of the node is reported after it was last seen, so that pods do not come and go.
    pub transition_period: Duration,
    /// The longest grace period of a pod that is evicted for a soft threshold; none: no limit.
    pub max_pod_grace: Option<Duration>,
    /// The figure that stands for available memory.
    pub memory_available: MemoryAvailable,
    /// Whether used swap counts as used memory, because pods are swapped out before one is evicted.
    pub counts_swap: bool,
    /// The rule by which memory stalls evict pods; none: stalls only wake the loop.
    pub memory_pressure: Option<PressureRule>,
    /// Whether pods that exceed their own local storage limits are evicted.
    pub local_storage_limits: bool,
    /// How static pods are treated.
    pub static_pods: StaticPods,
    /// The hook that runs before a pod is asked to stop; none: the pod is asked at once.
    pub hook: Option<Arc<HookRule>>,
    /// Whether this is a dry run, which decides and records but changes nothing.
    pub shadow: bool,
}

/// How static pods are treated under pressure.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum StaticPods {
    /// All static pods are critical, as with the kubelet.
    Spared,
    /// Static pods whose manifest sets a priority below 2000000000 are treated like other pods: on a node without a
    /// control plane all pods are static. An evicted static pod is readmitted when the pressure is over.
    #[default]
    ByPriority,
}

/// The rule by which memory stalls evict a pod.
///
/// All conditions must hold at once: tasks stall, no less than at the last sample, and memory is short as well. Stalls
/// alone say little: a cgroup at its own limit, or a slow disk, makes tasks stall while the node has plenty of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureRule {
    /// The tasks whose stalls count.
    pub scope: PressureScope,
    /// The minimum percentage of the last 10 s in which at least one task stalled; none: ignored.
    pub some: Option<f32>,
    /// The minimum percentage of the last 10 s in which all tasks stalled; none: ignored.
    pub full: Option<f32>,
    /// The amount of available memory below which the rule applies.
    pub below: ThresholdValue,
    /// The minimum pause after an eviction for memory.
    pub cool_down: Duration,
}

/// The tasks whose memory stalls count.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum PressureScope {
    /// All tasks of the node.
    #[default]
    Node,
    /// The node's pods.
    Pods,
}

// === impl Policy ===

impl Policy {
    /// The maximum number of thresholds: every signal, hard and soft, and derived ones.
    pub(crate) const MOST_THRESHOLDS: usize = 2 * Signal::COUNT + 6;

    /// A policy with these thresholds and default values otherwise. `enforce_pods` means that the pods' cgroup is
    /// limited, so that hard memory thresholds apply to it too. Of more than two per signal and six, derived ones
    /// included, the last are ignored.
    #[must_use]
    pub fn new(thresholds: Vec<Threshold>, enforce_pods: bool) -> Self {
        let policy = Self {
            configured: if enforce_pods { with_allocatable(thresholds) } else { thresholds },
            thresholds: Vec::new(),
            layout: FsLayout::One,
            transition_period: Duration::from_secs(5 * 60),
            max_pod_grace: None,
            memory_available: MemoryAvailable::default(),
            counts_swap: false,
            memory_pressure: None,
            local_storage_limits: true,
            static_pods: StaticPods::default(),
            hook: None,
            shadow: false,
        };
        policy.for_layout(FsLayout::One).0
    }

    /// The policy for this file system layout, and the configured thresholds that have no effect with it.
    #[must_use]
    pub fn for_layout(&self, layout: FsLayout) -> (Self, Vec<IneffectiveThreshold>) {
        let (mut thresholds, overwritten) = with_container_fs(&self.configured, layout);
        thresholds.truncate(Self::MOST_THRESHOLDS);
        (Self { thresholds, layout, ..self.clone() }, overwritten)
    }

    /// All effective thresholds, derived ones included.
    #[must_use]
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// The layout of the node's file systems.
    #[must_use]
    pub const fn layout(&self) -> FsLayout {
        self.layout
    }

    /// Whether the policy has nothing to check.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.thresholds.is_empty() && self.memory_pressure.is_none() && !self.local_storage_limits
    }

    /// Whether a pod is never evicted, however short the node runs.
    #[must_use]
    pub fn exempts(&self, pod: &Pod) -> bool {
        self.exemption(pod).is_some()
    }

    /// Why a pod is never evicted; none: it may be.
    #[must_use]
    pub fn exemption(&self, pod: &Pod) -> Option<Exemption> {
        if pod.priority_or_zero() >= winddown_shared::SYSTEM_CRITICAL_PRIORITY {
            return Some(Exemption::Priority);
        }
        match self.static_pods {
            // Neither static nor a mirror.
            _ if !pod.is_critical() => None,
            StaticPods::Spared => Some(Exemption::Static),
            StaticPods::ByPriority if pod.is_static() && pod.priority().is_some() => None,
            StaticPods::ByPriority => Some(Exemption::NoPriority),
        }
    }

    /// The time between SIGTERM and SIGKILL of a pod that is evicted for a threshold; none: the pod's own. Hard: one
    /// second. Soft: the pod's own, at most [`max_pod_grace`](Self::max_pod_grace).
    #[must_use]
    pub fn grace(&self, hard: bool, pod: &Pod) -> Option<Duration> {
        if hard {
            return Some(HARD_GRACE);
        }
        let most = self.max_pod_grace?;
        Some(pod.termination_grace_period().map_or(most, |own| own.min(most)))
    }
}

/// The grace period of a pod that is evicted for a hard threshold or for a limit of its own.
pub(crate) const HARD_GRACE: Duration = Duration::from_secs(1);
/// The time that a pod gets beyond its grace period, so that a hard eviction has the kubelet's 10 s in all: on a node
/// that is short of everything a kill takes seconds, and evicting another pod would not speed it up.
pub(crate) const BEYOND_GRACE: Duration = Duration::from_secs(9);

/// What winddown does when nothing is configured: the thresholds of [`DEFAULT_HARD`](crate::DEFAULT_HARD), also for the pods' cgroup.
impl Default for Policy {
    fn default() -> Self {
        let config = ThresholdConfig { hard: default_hard(), ..ThresholdConfig::default() };
        // A test reads them.
        Self::new(config.thresholds().unwrap_or_default(), true)
    }
}

// === impl PressureRule ===

impl Default for PressureRule {
    /// All tasks of the node stall 10 % of the time, and less than a tenth of the memory is available; at most once in
    /// 10 s.
    fn default() -> Self {
        Self {
            scope: PressureScope::Node,
            some: None,
            full: Some(10.0),
            below: ThresholdValue::Share(0.1),
            cool_down: Duration::from_secs(10),
        }
    }
}
