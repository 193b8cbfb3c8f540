//! What is configured.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{FsLayout, Pod};

use crate::hook::HookRule;
use crate::observation::MemoryAvailable;
use crate::threshold::{
    Overwritten, Threshold, ThresholdValue, with_allocatable, with_container_fs,
};

/// The rules by which pods are ended when the node runs short.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    configured: Vec<Threshold>,
    thresholds: Vec<Threshold>,
    layout: FsLayout,
    /// How long a condition of the node is reported after it was last seen. Also keeps pods from
    /// coming and going.
    pub transition_period: Duration,
    /// The longest grace of a pod that is ended for a soft threshold; none: each pod's own.
    pub max_pod_grace: Option<Duration>,
    /// Which figure stands for the memory that is available.
    pub memory_available: MemoryAvailable,
    /// Pods whose memory beyond the request is in the same multiple of so many bytes are alike, and the one that grows
    /// faster is ended first. None: to the byte, and growth is not measured.
    pub memory_tie: Option<u64>,
    /// For how long the kernel may take back memory of the pod that would be ended, where that can be enough; none: the
    /// pod ends.
    pub memory_reclaim: Option<Duration>,
    /// Whether memory stalls evict pods, in addition to waking the loop.
    pub memory_pressure: Option<PressureRule>,
    /// Whether pods are ended that have more on the disks than they may.
    pub local_storage_limits: bool,
    /// How static pods are treated.
    pub static_pods: StaticPods,
    /// What runs before a pod is asked to end; none: it is asked at once.
    pub hook: Option<Arc<HookRule>>,
    /// Decide and record, touch nothing.
    pub shadow: bool,
}

/// How static pods are treated under pressure.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum StaticPods {
    /// All static pods are critical, as for the kubelet.
    #[default]
    Spared,
    /// Those with a priority in their manifest, and one below 2000000000, are like other pods: on a
    /// node without a control plane all pods are static. An evicted static pod is readmitted when
    /// the pressure is over.
    ByPriority,
}

/// When memory stalls evict a pod.
///
/// All conditions must hold at once: tasks stall, no less than before, and memory is short as well.
/// Stalls alone say little: a cgroup at its own limit, or a slow disk, makes tasks stall while the
/// node has plenty of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureRule {
    /// Who waits.
    pub scope: PressureScope,
    /// Percent of the last 10 s in which at least one task waited; none: not looked at.
    pub some: Option<f32>,
    /// Percent of the last 10 s in which all tasks waited; none: not looked at.
    pub full: Option<f32>,
    /// And less memory than this is available.
    pub below: ThresholdValue,
    /// The pause after each such eviction.
    pub cool_down: Duration,
}

/// Whose waiting counts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum PressureScope {
    /// All tasks of the node.
    #[default]
    Node,
    /// The pods'.
    Pods,
}

// === impl Policy ===

impl Policy {
    /// The maximum: nine signals, hard and soft, and a copy.
    pub(crate) const MOST_THRESHOLDS: usize = 24;

    /// The rules with these thresholds and everything else as it is by default. `enforce_pods`: the
    /// pods' cgroup is limited, so hard thresholds on memory hold for it too.
    #[must_use]
    pub fn new(thresholds: Vec<Threshold>, enforce_pods: bool) -> Self {
        let mut configured = if enforce_pods { with_allocatable(thresholds) } else { thresholds };
        configured.truncate(Self::MOST_THRESHOLDS);
        let layout = FsLayout::One;
        Self {
            thresholds: with_container_fs(&configured, layout).0,
            configured,
            layout,
            transition_period: Duration::from_secs(5 * 60),
            max_pod_grace: None,
            memory_available: MemoryAvailable::default(),
            memory_tie: None,
            memory_reclaim: None,
            memory_pressure: None,
            local_storage_limits: true,
            static_pods: StaticPods::default(),
            hook: None,
            shadow: false,
        }
    }

    /// The policy for this file system layout, and the configured thresholds that have no effect
    /// with it.
    #[must_use]
    pub fn for_layout(&self, layout: FsLayout) -> (Self, Vec<Overwritten>) {
        let (thresholds, overwritten) = with_container_fs(&self.configured, layout);
        (Self { thresholds, layout, ..self.clone() }, overwritten)
    }

    /// All effective thresholds, derived ones included.
    #[must_use]
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// How the file systems are laid out.
    #[must_use]
    pub const fn layout(&self) -> FsLayout {
        self.layout
    }

    /// Whether there is nothing to watch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.thresholds.is_empty() && self.memory_pressure.is_none() && !self.local_storage_limits
    }

    /// Whether a pod is never ended because the node runs short.
    #[must_use]
    pub fn spares(&self, pod: &Pod) -> bool {
        match self.static_pods {
            StaticPods::ByPriority if pod.is_static() && pod.priority().is_some() => {
                pod.priority_or_zero() >= winddown_shared::SYSTEM_CRITICAL_PRIORITY
            }
            StaticPods::Spared | StaticPods::ByPriority => pod.is_critical(),
        }
    }

    /// The time between SIGTERM and SIGKILL of a pod that is ended for a threshold; none: the pod's
    /// own. Hard: one second. Soft: the pod's own, at most [`max_pod_grace`](Self::max_pod_grace).
    #[must_use]
    pub fn grace(&self, hard: bool, pod: &Pod) -> Option<Duration> {
        if hard {
            return Some(HARD_GRACE);
        }
        let most = self.max_pod_grace?;
        Some(pod.own_grace().map_or(most, |own| own.min(most)))
    }
}

/// The grace of a pod that is ended at once.
pub(crate) const HARD_GRACE: Duration = Duration::from_secs(1);
/// A pod gets this much more time than its grace, so that one that is killed has the kubelet's 10 s: on a node that
/// is short of everything a kill takes seconds, and another pod's end would not make it quicker.
pub(crate) const BEYOND_GRACE: Duration = Duration::from_secs(9);

// === impl PressureRule ===

impl Default for PressureRule {
    /// All tasks of the node wait 10 % of the time, and less than a tenth of the memory is
    /// available; once in 10 s.
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
