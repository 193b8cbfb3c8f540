//! What the kernel kills first when memory runs out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_shared::{Pod, QosClass, Quantity};

/// A container's `oom_score_adj`, by the kubelet's rule: guaranteed pods last, best effort first, the
/// rest by what share of the node's memory (in bytes) they asked for; a sidecar not before the containers
/// it serves. From -997 to 1000.
pub(crate) fn oom_score_adj(pod: &Pod, container: &k8s::Container, node_memory: i64) -> i16 {
    match pod.qos() {
        _ if pod.is_node_critical() => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let own = burstable(container, node_memory);
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            let served = pod.spec.iter().flat_map(|s| &s.containers);
            let lowest = served.map(|c| burstable(c, node_memory)).min();
            if is_sidecar { lowest.map_or(own, |lowest| own.min(lowest)) } else { own }
        }
    }
}

fn burstable(container: &k8s::Container, node_memory: i64) -> i16 {
    let memory = |amounts: Option<&BTreeMap<String, Text>>| {
        amounts?.get("memory")?.0.parse::<Quantity>().ok().map(Quantity::value)
    };
    let resources = container.resources.as_ref();
    // A limit without a request is a request of as much.
    let request = memory(resources.and_then(|r| r.requests.as_ref()))
        .or_else(|| memory(resources.and_then(|r| r.limits.as_ref())));
    let share = request.unwrap_or(0).saturating_mul(1000) / node_memory.max(1);
    i16::try_from((1000 - share).clamp(3, 999)).unwrap_or(999)
}
