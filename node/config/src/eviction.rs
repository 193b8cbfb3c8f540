//! The settings of eviction, i.e. of stopping pods when the node runs short of a resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use winddown_eviction::{
    HookRule, MemoryAvailable, Policy, PressureRule, StaticPods, ThresholdConfig, default_hard,
};
use winddown_shared::{GoDuration, error_chain};

#[cfg(test)]
mod tests;

/// The eviction fields. Each value is validated, and kept as it was written.
///
/// Signals are the kubelet's; values are quantities or percentages.
// Over the limit because each field is an option of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionSettings {
    /// `evictionHard`, with the defaults: signal to value.
    pub hard: BTreeMap<String, String>,
    /// `mergeDefaultEvictionSettings`; for a file that was read, `hard` already includes the defaults.
    pub merge_defaults: bool,
    /// `evictionSoft`: signal to value. Each has its entry in `soft_grace_period`.
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`: signal to grace period, greater than zero.
    pub soft_grace_period: BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`: signal to value.
    pub minimum_reclaim: BTreeMap<String, String>,
    /// `evictionPressureTransitionPeriod`: at least 1 s.
    pub pressure_transition_period: Duration,
    /// `evictionMaxPodGracePeriod`, in seconds; 0 means each pod's own grace period.
    pub max_pod_grace_period: i32,
    /// `memoryAvailable`.
    pub memory_available: MemoryAvailable,
    /// `evictionMemoryReclaim`; `None` unless it is configured.
    pub memory_reclaim: Option<Duration>,
    /// `memoryPressure`; `None` unless it is configured.
    pub memory_pressure: Option<PressureRule>,
    /// `evictionHook`; `None` unless it is configured.
    pub hook: Option<HookRule>,
    /// `evictStaticPods`.
    pub static_pods: StaticPods,
    /// `evictionShadow`.
    pub shadow: bool,
    /// `imageMinimumGCAge`: images that have been on the node for less than this are kept.
    pub image_minimum_gc_age: Duration,
    /// `localStorageCapacityIsolation`.
    pub local_storage_limits: bool,
    /// Whether `enforceNodeAllocatable` contains `pods`.
    pub enforce_pods: bool,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            hard: default_hard(),
            merge_defaults: false,
            soft: BTreeMap::new(),
            soft_grace_period: BTreeMap::new(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(5 * 60),
            max_pod_grace_period: 0,
            memory_available: MemoryAvailable::default(),
            memory_reclaim: None,
            memory_pressure: None,
            hook: None,
            static_pods: StaticPods::ByPriority,
            shadow: false,
            image_minimum_gc_age: Duration::from_secs(2 * 60),
            local_storage_limits: true,
            enforce_pods: true,
        }
    }
}

impl EvictionSettings {
    /// Returns the eviction policy, before the layout of the node's file systems is known.
    ///
    /// If any threshold is invalid, the policy has no thresholds at all; settings that were read
    /// from a file are always valid.
    pub fn policy(&self) -> Policy {
        let grace = |grace: Duration| GoDuration::try_from(grace).unwrap_or_default().to_string();
        let graces = self.soft_grace_period.iter().map(|(signal, g)| (signal.clone(), grace(*g)));
        let config = ThresholdConfig {
            hard: self.hard.clone(),
            soft: self.soft.clone(),
            soft_grace: graces.collect(),
            minimum_reclaim: self.minimum_reclaim.clone(),
        };
        let thresholds = config.thresholds().unwrap_or_else(|error| {
            tracing::error!(error = error_chain(&error), "no eviction threshold is used");
            Vec::new()
        });
        let mut policy = Policy::new(thresholds, self.enforce_pods);
        policy.transition_period = self.pressure_transition_period;
        policy.max_pod_grace = match self.max_pod_grace_period {
            // As with the kubelet, 0 and below take the pod's own.
            ..=0 => None,
            seconds => Some(Duration::from_secs(u64::from(seconds.unsigned_abs()))),
        };
        policy.memory_available = self.memory_available;
        policy.memory_reclaim = self.memory_reclaim;
        policy.memory_pressure = self.memory_pressure;
        policy.hook = self.hook.clone().map(Arc::new);
        policy.static_pods = self.static_pods;
        policy.shadow = self.shadow;
        policy.local_storage_limits = self.local_storage_limits;
        policy
    }
}
