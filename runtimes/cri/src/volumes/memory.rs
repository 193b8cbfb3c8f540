//! The size of an `emptyDir` in memory.

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_engine::amounts::amount;
use winddown_shared::{Pod, Quantity};

/// The size in bytes, as the kubelet's: `limit`, which is the volume's own, but no more than the pod may use, nor than
/// the node has `for_pods`. `None` if nothing of that is known: the kernel's own limit, half of the memory.
pub(super) fn size(pod: &Pod, limit: Option<&Text>, for_pods: i64) -> Option<i64> {
    let own = limit.and_then(|text| text.0.parse::<Quantity>().ok()).map(Quantity::value);
    let all = [own, limit_of(pod), Some(for_pods)];
    all.into_iter().flatten().filter(|&bytes| bytes > 0).min()
}

/// The pod's memory limit: its own, or that of its containers if each has one.
fn limit_of(pod: &Pod) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let has_one = |resources: &Option<k8s::ResourceRequirements>| {
        amount(resources.as_ref().and_then(|r| r.limits.as_ref()), "memory").is_some()
    };
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let is_limited = has_one(&spec.resources) || all.all(|container| has_one(&container.resources));
    is_limited.then(|| pod.accounted_limits().memory_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_least_of_the_limits_of_the_volume_the_pod_and_the_node_is_its_size() {
        let of = |spec: Value| {
            let meta = json!({"name": "web", "namespace": "n", "uid": "u"});
            let object = json!({"metadata": meta, "spec": spec});
            Pod::new(serde_json::from_value(object).unwrap()).unwrap()
        };
        let with = |memory: &str| json!({"name": "c", "resources": {"limits": {"memory": memory}}});
        let open = of(json!({"containers": [{"name": "c"}]}));
        let limited = of(json!({"containers": [with("16Mi"), with("16Mi")]}));
        let half = of(json!({"containers": [with("16Mi"), {"name": "d"}]}));
        let whole = json!({"limits": {"memory": "24Mi"}});
        let whole = of(json!({"resources": whole, "containers": [{"name": "c"}]}));
        const MIB: i64 = 1 << 20;
        for (pod, limit, for_pods, wanted) in [
            (&open, Some("1Mi"), 64 * MIB, Some(MIB)),
            (&open, None, 64 * MIB, Some(64 * MIB)),
            (&open, Some("1Gi"), 64 * MIB, Some(64 * MIB)),
            (&open, Some("0"), 64 * MIB, Some(64 * MIB)),
            (&limited, None, 64 * MIB, Some(32 * MIB)),
            (&limited, Some("1Mi"), 64 * MIB, Some(MIB)),
            (&limited, Some("1Gi"), 64 * MIB, Some(32 * MIB)),
            (&half, None, 64 * MIB, Some(64 * MIB)),
            (&whole, None, 64 * MIB, Some(24 * MIB)),
            (&open, None, 0, None),
        ] {
            let limit = limit.map(|text| Text(text.to_owned()));
            assert_eq!(size(pod, limit.as_ref(), for_pods), wanted, "{limit:?} {pod:?}");
        }
    }
}
