//! The loop on a paused clock, with fakes for everything that it uses.

use std::time::Duration;

use winddown_shared::{NodeStats, Pod, PodStats};

use crate::Policy;
use crate::tests::{bytes, changed, container, memory, pod};
use crate::threshold::ThresholdConfig;

mod around;
mod disks;
mod limits;
mod notifier;
mod pressure;
mod reference;
pub(crate) mod world;

use world::World;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn policy(fields: serde_json::Value) -> Policy {
    let config: ThresholdConfig = serde_json::from_value(fields).unwrap();
    let mut policy = Policy::new(config.thresholds().unwrap(), false);
    policy.max_pod_grace = Some(secs(5));
    policy
}

fn hard() -> Policy {
    policy(serde_json::json!({"evictionHard": {"memory.available": "1Gi"}}))
}

/// The names of the pods that were asked to stop.
fn names(world: &World) -> Vec<String> {
    world.killed().into_iter().map(|(name, _)| name).collect()
}

/// A node of 16 GiB with this much available memory, by every measure.
pub(crate) fn left(memory: &str) -> NodeStats {
    world::memory_left(bytes(memory))
}

/// The pods of the kubelet's memory pressure test. Among those that exceed their request, the last has the lowest
/// priority and uses least.
fn memory_pods() -> Vec<(Pod, PodStats)> {
    let guaranteed = changed("guaranteed-low-priority-high-usage", -1, &[], |object| {
        let memory = [("cpu", "100m"), ("memory", "1Gi")];
        object.spec.as_mut().unwrap().containers = vec![container("main", &memory, &memory)];
    });
    let burstable = |name: &str| pod(name, 0, &[("cpu", "100m"), ("memory", "100Mi")]);
    vec![
        (guaranteed, memory("900Mi")),
        (burstable("burstable-below-requests"), memory("50Mi")),
        (burstable("burstable-above-requests"), memory("400Mi")),
        (pod("best-effort-high-priority-high-usage", 1, &[]), memory("400Mi")),
        (pod("best-effort-low-priority-low-usage", -1, &[]), memory("100Mi")),
    ]
}

const LOWEST: &str = "best-effort-low-priority-low-usage";
