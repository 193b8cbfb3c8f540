//! The order in which the kernel kills containers when memory runs out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_shared::{ContainerKind, Pod, QosClass, Quantity};

use crate::amounts::amount;

/// A container's `oom_score_adj`, calculated as the kubelet does: guaranteed pods are killed last and best-effort pods
/// first, the rest by the share of the node's memory (in bytes) that they request; a sidecar is not killed before the
/// containers it serves. A pod-level request beyond the sum of the containers' requests counts in equal parts for each
/// container (KEP-2837). From -997 to 1000.
pub fn oom_score_adj(pod: &Pod, container: &k8s::Container, node_memory: i64) -> i16 {
    match pod.qos() {
        _ if pod.is_node_critical() => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let rest = rest_per_container(pod);
            let own = burstable(container, rest, node_memory);
            let is_sidecar = ContainerKind::of_init(container) == ContainerKind::Sidecar;
            let served = pod.spec.iter().flat_map(|s| &s.containers);
            let lowest = served.map(|c| burstable(c, rest, node_memory)).min();
            if is_sidecar { lowest.map_or(own, |lowest| own.min(lowest)) } else { own }
        }
    }
}

/// Each container's part of the pod-level memory request beyond the containers' requests.
fn rest_per_container(pod: &Pod) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let whole = spec.resources.as_ref().and_then(|whole| memory(whole.requests.as_ref()));
    let Some(whole) = whole.filter(|&whole| whole > 0) else { return 0 };
    let containers = spec.containers.len() + spec.init_containers.iter().flatten().count();
    let rest = whole.saturating_sub(pod.container_requests().memory_bytes());
    rest / i64::try_from(containers).unwrap_or(i64::MAX).max(1)
}

fn memory(amounts: Option<&BTreeMap<String, Text>>) -> Option<i64> {
    amount(amounts, "memory").map(Quantity::value)
}

fn burstable(container: &k8s::Container, rest: i64, node_memory: i64) -> i16 {
    let resources = container.resources.as_ref();
    // A limit without a request also sets the request.
    let request = memory(resources.and_then(|r| r.requests.as_ref()))
        .or_else(|| memory(resources.and_then(|r| r.limits.as_ref())));
    let request = request.unwrap_or(0).saturating_add(rest);
    let share = request.saturating_mul(1000) / node_memory.max(1);
    i16::try_from((1000 - share).clamp(3, 999)).unwrap_or(999)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pod_asks_for_as_a_whole_counts_for_its_containers_in_equal_parts() {
        let asks = |mi: u32| json!({"requests": {"memory": format!("{mi}Mi")}});
        let object = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "resources": asks(600),
                "initContainers": [{"name": "init", "resources": asks(50)}],
                "containers": [
                    {"name": "large", "resources": asks(200)},
                    {"name": "small", "resources": asks(100)},
                ],
            },
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let init = spec.init_containers.iter().flatten();
        let scores: Vec<i16> = init
            .chain(&spec.containers)
            .map(|container| oom_score_adj(&pod, container, 1000 << 20))
            .collect();
        // 300 of the 600 are left over, 100 for each.
        assert_eq!(scores, [850, 700, 800]);
    }
}
