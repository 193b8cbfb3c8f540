//! Pods and figures for tests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod as ApiPod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use winddown_shared::testing::pod_with;
use winddown_shared::{ContainerStats, DiskUse, Pod, PodStats, Quantity};

/// The bytes of a quantity.
pub(crate) fn bytes(quantity: &str) -> u64 {
    u64::try_from(quantity.parse::<Quantity>().unwrap().value()).unwrap()
}

pub(crate) fn quantities<'a>(
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<BTreeMap<String, ApiQuantity>> {
    let map: BTreeMap<_, _> = pairs
        .into_iter()
        .map(|(name, quantity)| (name.to_owned(), ApiQuantity(quantity.to_owned())))
        .collect();
    Some(map)
}

/// A container with these requests and limits.
pub(crate) fn container(
    name: &str,
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> Container {
    Container {
        name: name.to_owned(),
        resources: Some(ResourceRequirements {
            requests: quantities(requests.iter().copied()),
            limits: quantities(limits.iter().copied()),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

/// A pod with one container, `main`, this priority and these requests.
pub(crate) fn pod(name: &str, priority: i32, requests: &[(&str, &str)]) -> Pod {
    changed(name, priority, requests, |_| {})
}

pub(crate) fn changed(
    name: &str,
    priority: i32,
    requests: &[(&str, &str)],
    change: impl FnOnce(&mut ApiPod),
) -> Pod {
    pod_with(name, name, |object| {
        let spec = object.spec.as_mut().unwrap();
        spec.priority = Some(priority);
        spec.containers = vec![container("main", requests, &[])];
        change(object);
    })
}

/// The stats of a pod that uses this much memory.
pub(crate) fn memory(quantity: &str) -> PodStats {
    let mut stats = PodStats::default();
    stats.memory_working_set = Some(bytes(quantity));
    stats
}

/// The stats of a pod with this many tasks.
pub(crate) fn tasks(count: u64) -> PodStats {
    let mut stats = PodStats::default();
    stats.tasks = Some(count);
    stats
}

/// The stats of a pod whose container `main` has this much in its writable layer and its logs.
pub(crate) fn disk(rootfs: &str, logs: &str) -> PodStats {
    let part = |quantity| Some(DiskUse { bytes: bytes(quantity), ..DiskUse::default() });
    let main = ContainerStats {
        name: "main".into(),
        rootfs: part(rootfs),
        logs: part(logs),
        ..ContainerStats::default()
    };
    {
        let mut stats = PodStats::default();
        stats.containers = vec![main];
        stats
    }
}

/// The stats of a pod with this many inodes in its writable layer.
pub(crate) fn inodes(count: u64) -> PodStats {
    let rootfs = Some(DiskUse { inodes: count, ..DiskUse::default() });
    let main = ContainerStats { name: "main".into(), rootfs, ..ContainerStats::default() };
    {
        let mut stats = PodStats::default();
        stats.containers = vec![main];
        stats
    }
}
