//! CPU, memory and the OOM score, as the kubelet computes them.

use std::collections::BTreeMap;
use std::iter;
use std::path::PathBuf;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_engine::amounts::{CPU_PERIOD_MICROS, amount, quota, shares};
use winddown_engine::oom_score::oom_score_adj;
use winddown_shared::{Pod, PodUid, QosClass, Quantity};

use super::super::kernel_limits::KernelLimits;
use super::super::{CgroupDriver, api};

/// The resource limits and weights of a container.
pub(super) fn resources(
    pod: &Pod,
    container: &k8s::Container,
    node_memory: i64,
    kernel: &KernelLimits,
) -> api::LinuxContainerResources {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let cpu_limit = amount(limits, "cpu").map(Quantity::milli_value);
    // Without a request, the limit counts as the request.
    let cpu_request = amount(requests, "cpu").map(Quantity::milli_value).or(cpu_limit);
    // What runs out of memory exits as a whole: programs of several processes rarely survive the loss of one.
    let unified = kernel.has_unified_memory.then(|| ("memory.oom.group".into(), "1".into()));
    api::LinuxContainerResources {
        cpu_shares: shares(cpu_request.unwrap_or(0)),
        cpu_quota: cpu_limit.filter(|&milli| milli > 0).map_or(0, quota),
        cpu_period: CPU_PERIOD_MICROS,
        memory_limit_in_bytes: amount(limits, "memory").map_or(0, Quantity::value),
        oom_score_adj: i64::from(oom_score_adj(pod, container, node_memory)),
        hugepage_limits: huge_pages(limits, &kernel.huge_pages),
        unified: unified.into_iter().collect(),
    }
}

/// The parent of all pods' cgroups, as a path.
pub(crate) fn pods_cgroup(root: &str, driver: CgroupDriver) -> String {
    format!("/{}", group(root, driver, &[]).trim_start_matches('/'))
}

/// The parent of the cgroups of a pod's containers, in the driver's format.
pub(crate) fn cgroup_parent(
    root: &str,
    driver: CgroupDriver,
    pod: &PodUid,
    qos: QosClass,
) -> String {
    let pod = format!("pod{pod}");
    let below: Vec<&str> = class(qos).into_iter().chain([&*pod]).collect();
    group(root, driver, &below)
}

/// The path of a pod's cgroup below the hierarchy's root.
pub(crate) fn pod_cgroup(root: &str, driver: CgroupDriver, pod: &PodUid, qos: QosClass) -> PathBuf {
    place(&cgroup_parent(root, driver, pod, qos), driver)
}

/// The path of the cgroup of a QoS class below the hierarchy's root; Guaranteed pods have none.
pub(crate) fn class_cgroup(root: &str, driver: CgroupDriver, qos: QosClass) -> Option<PathBuf> {
    Some(place(&group(root, driver, &[class(qos)?]), driver))
}

/// The cgroup with these levels below the root, in the driver's format.
fn group(root: &str, driver: CgroupDriver, below: &[&str]) -> String {
    let levels = iter::once(root).chain(below.iter().copied());
    match driver {
        CgroupDriver::Cgroupfs => levels.map(|level| format!("/{level}")).collect(),
        CgroupDriver::Systemd => {
            // A dash in a slice's name separates levels, so the dashes of the names themselves are replaced.
            let levels: Vec<String> = levels.map(|level| level.replace('-', "_")).collect();
            format!("{}.slice", levels.join("-"))
        }
    }
}

fn class(qos: QosClass) -> Option<&'static str> {
    match qos {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

/// Converts a cgroup to its path. A slice is nested in the slices whose names are prefixes of its own.
fn place(group: &str, driver: CgroupDriver) -> PathBuf {
    if driver == CgroupDriver::Cgroupfs {
        return group.trim_start_matches('/').into();
    }
    let name = group.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("{}.slice", &name[..end])).collect()
}

/// A limit for each size of huge pages: 0 where the container has none.
fn huge_pages(limits: Option<&BTreeMap<String, Text>>, sizes: &[i64]) -> Vec<api::HugepageLimit> {
    let own = limits.into_iter().flatten().filter_map(|(name, text)| {
        let size = name.strip_prefix("hugepages-")?.parse::<Quantity>().ok()?.value();
        Some((page_size(size)?, u64::try_from(text.0.parse::<Quantity>().ok()?.value()).ok()?))
    });
    let none = sizes.iter().filter_map(|size| Some((page_size(*size)?, 0)));
    let all: BTreeMap<String, u64> = none.chain(own).collect();
    all.into_iter().map(|(page_size, limit)| api::HugepageLimit { page_size, limit }).collect()
}

/// Names pages of this size in bytes as the kernel names its files: `2MB`.
fn page_size(bytes: i64) -> Option<String> {
    let (number, unit) = match bytes {
        b if b >= 1 << 30 => (b >> 30, "GB"),
        b if b >= 1 << 20 => (b >> 20, "MB"),
        b => (b >> 10, "KB"),
    };
    (number > 0).then(|| format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(resources: &Value) -> Pod {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let meta = json!({"name": "p", "namespace": "n", "uid": "1a-2b"});
        let object = json!({"metadata": meta, "spec": spec});
        Pod::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    fn of(given: &Value) -> api::LinuxContainerResources {
        let pod = pod(given);
        let kernel = KernelLimits { has_unified_memory: true, huge_pages: vec![2 << 20, 1 << 30] };
        resources(&pod, &pod.spec.as_ref().unwrap().containers[0], 1 << 30, &kernel)
    }

    #[test]
    fn cpu_becomes_shares_and_quota() {
        for (given, shares, quota) in [
            (json!({}), 2, 0),
            (json!({"requests": {"cpu": "1m"}}), 2, 0),
            (json!({"requests": {"cpu": "250m"}}), 256, 0),
            (json!({"requests": {"cpu": "1000"}}), 262_144, 0),
            (json!({"limits": {"cpu": "500m"}}), 512, 50_000),
            (json!({"limits": {"cpu": "1m"}}), 2, 1000),
            (json!({"limits": {"cpu": "2"}, "requests": {"cpu": "100m"}}), 102, 200_000),
        ] {
            let found = of(&given);
            assert_eq!((found.cpu_shares, found.cpu_quota), (shares, quota), "{given}");
        }
    }

    #[test]
    fn the_out_of_memory_score_follows_the_class_and_the_request() {
        for (given, score) in [
            (json!({}), 1000),
            (json!({"requests": {"memory": "256Mi"}}), 750),
            (json!({"requests": {"memory": "1"}}), 999),
            (json!({"requests": {"memory": "2Gi"}}), 3),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
                -997,
            ),
        ] {
            assert_eq!(of(&given).oom_score_adj, score, "{given}");
        }
    }

    #[test]
    fn huge_pages_are_named_as_the_kernel_names_them_and_a_container_has_none_that_it_does_not_ask_for()
     {
        for (given, expected) in [
            (
                json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}),
                vec![("1GB", 1 << 30), ("2MB", 4 << 20)],
            ),
            (json!({"hugepages-2Mi": "4Mi"}), vec![("1GB", 0), ("2MB", 4 << 20)]),
            (json!({"hugepages-64Ki": "64Ki"}), vec![("1GB", 0), ("2MB", 0), ("64KB", 64 << 10)]),
            (json!({}), vec![("1GB", 0), ("2MB", 0)]),
        ] {
            let found = of(&json!({"limits": given})).hugepage_limits;
            let named: Vec<_> = found.iter().map(|h| (h.page_size.as_str(), h.limit)).collect();
            assert_eq!(named, expected, "{given}");
        }
    }

    #[test]
    fn the_cgroup_parent_is_written_as_the_driver_wants_it() {
        let uid = PodUid::new("1a-2b");
        let of = |driver, qos| cgroup_parent("wind-down", driver, &uid, qos);
        assert_eq!(of(CgroupDriver::Cgroupfs, QosClass::Guaranteed), "/wind-down/pod1a-2b");
        assert_eq!(
            of(CgroupDriver::Cgroupfs, QosClass::Burstable),
            "/wind-down/burstable/pod1a-2b"
        );
        assert_eq!(
            of(CgroupDriver::Systemd, QosClass::BestEffort),
            "wind_down-besteffort-pod1a_2b.slice"
        );
        assert_eq!(pods_cgroup("wind-down", CgroupDriver::Cgroupfs), "/wind-down");
        assert_eq!(pods_cgroup("wind-down", CgroupDriver::Systemd), "/wind_down.slice");
    }
}
