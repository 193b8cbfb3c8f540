//! Pods that exceed their own disk limits.

use winddown_shared::{ContainerStats, DiskUse, FsLayout, Pod, PodStats, Quantity, QuantityFormat};

use crate::cause::Cause;
use crate::message::{bytes, container_over, empty_dir_over, pod_over};
use crate::observation::signed;
use crate::usage::{local_volumes, volumes};

#[cfg(test)]
mod tests;

/// A limit that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverLimit {
    /// The kind of limit.
    pub cause: Cause,
    /// The pod's status message.
    pub message: String,
}

/// Whether the pod has any local storage limit, so that it has to be measured.
#[must_use]
pub fn has_local_limits(pod: &Pod) -> bool {
    empty_dir_limits(pod).next().is_some() || is_limited(pod)
}

/// The first limit that the pod exceeds: of its `emptyDir` volumes, then of the whole pod, then of its containers.
///
/// The limit of the pod is the sum of its containers' limits if at least one has a limit; the sum may be 0.
#[must_use]
pub fn over_limit(pod: &Pod, stats: &PodStats, layout: FsLayout) -> Option<OverLimit> {
    over_empty_dir(pod, stats)
        .or_else(|| over_pod(pod, stats))
        .or_else(|| over_container(pod, stats, layout))
}

fn over_empty_dir(pod: &Pod, stats: &PodStats) -> Option<OverLimit> {
    empty_dir_limits(pod).find_map(|(name, limit)| {
        let volume = stats.volumes.iter().find(|volume| &*volume.name == name)?;
        let message = (bytes(volume.used.bytes) > limit).then(|| empty_dir_over(name, limit))?;
        Some(OverLimit { cause: Cause::EmptyDirLimit, message })
    })
}

fn over_pod(pod: &Pod, stats: &PodStats) -> Option<OverLimit> {
    let limit = pod.accounted_limits().ephemeral_storage_bytes();
    let used = stats.ephemeral.unwrap_or_else(|| all_on_disk(pod, stats));
    (is_limited(pod) && signed(used.bytes) > limit).then(|| OverLimit {
        cause: Cause::PodLimit,
        message: pod_over(Quantity::new(limit, format_of_limits(pod))),
    })
}

/// Whether a container or an init container has an ephemeral storage limit.
fn is_limited(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    let mut containers = spec.into_iter().flat_map(|spec| &spec.containers).chain(init);
    containers.any(|container| {
        let limits = container.resources.as_ref().and_then(|found| found.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key("ephemeral-storage"))
    })
}

/// The format of the first limit, in which the sum is written.
fn format_of_limits(pod: &Pod) -> QuantityFormat {
    container_limits(pod).next().map_or(QuantityFormat::BinarySi, |(_, limit)| limit.format())
}

fn over_container(pod: &Pod, stats: &PodStats, layout: FsLayout) -> Option<OverLimit> {
    container_limits(pod).find_map(|(name, limit)| {
        let container = stats.containers.iter().find(|container| &*container.name == name)?;
        let used = container_use(container, layout);
        let message = (bytes(used) > limit).then(|| container_over(name, limit))?;
        Some(OverLimit { cause: Cause::ContainerLimit, message })
    })
}

fn empty_dir_limits(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    volumes(pod).filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let limit: Quantity = limit.0.parse().ok()?;
        (!limit.is_zero() && !limit.is_negative()).then_some((volume.name.as_str(), limit))
    })
}

fn container_limits(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter_map(|container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        let limit: Quantity = limits.get("ephemeral-storage")?.0.parse().ok()?;
        (!limit.is_zero()).then_some((container.name.as_str(), limit))
    })
}

/// A container's usage. Writable layers do not count if they are on a file system other than the node's.
fn container_use(container: &ContainerStats, layout: FsLayout) -> u64 {
    let logs = container.logs.unwrap_or_default();
    match layout {
        FsLayout::One => logs.and(container.rootfs.unwrap_or_default()).bytes,
        FsLayout::ImageFs | FsLayout::Split => logs.bytes,
    }
}

fn all_on_disk(pod: &Pod, stats: &PodStats) -> DiskUse {
    let containers = stats.containers.iter().flat_map(|c| [c.rootfs, c.logs]).flatten();
    let volumes = local_volumes(pod)
        .filter_map(|name| Some(stats.volumes.iter().find(|volume| &*volume.name == name)?.used));
    containers.chain(volumes).fold(DiskUse::default(), DiskUse::and)
}
