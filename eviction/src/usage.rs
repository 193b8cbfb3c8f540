//! A pod's usage of the short resource.

use k8s_openapi::api::core::v1::Volume;
use winddown_shared::{DiskUse, FsLayout, Pod, PodStats, PressureCondition};

use crate::observation::signed;
use crate::pending_reclaim::Amounts;
use crate::policy::Policy;
use crate::signal::{FileSystem, FreedBy, PodUsage, Signal};

#[cfg(test)]
mod tests;

/// The pod's usage of the resource that `signal` measures, in its unit.
///
/// A part that was not measured counts as nothing, as with the kubelet.
#[must_use]
pub fn usage(signal: Signal, pod: &Pod, stats: &PodStats, layout: FsLayout) -> i64 {
    known_usage(signal, pod, stats, layout).unwrap_or(0)
}

/// The same; none if no part was measured.
fn known_usage(signal: Signal, pod: &Pod, stats: &PodStats, layout: FsLayout) -> Option<i64> {
    let used = match signal.usage() {
        PodUsage::Figure(figure) => figure(stats)?,
        PodUsage::OnDisk(file_system, part) => {
            let parts = Parts::on(file_system, layout);
            part(parts.are_known(stats).then(|| parts.sum_of(stats, local_volumes(pod)))?)
        }
    };
    Some(signed(used))
}

/// The usage as the ranking compares it; none if no part was measured, because an unknown usage is not a small one.
/// Used swap counts as used where pods are swapped out before one is evicted: otherwise a pod that was spared by swapping
/// would put another one in its place.
#[must_use]
pub(crate) fn measured(
    signal: Signal,
    pod: &Pod,
    stats: &PodStats,
    policy: &Policy,
) -> Option<i64> {
    let is_swapped_out = policy.counts_swap && signal.resource().row().is_swapped_out;
    let swap = stats.swap.filter(|_| is_swapped_out);
    let used = known_usage(signal, pod, stats, policy.layout())?;
    Some(used.saturating_add(signed(swap.unwrap_or_default())))
}

/// Whether the pod uses more of the resource than was counted.
pub(crate) fn is_partial(signal: Signal, pod: &Pod, stats: &PodStats, layout: FsLayout) -> bool {
    match signal.usage() {
        PodUsage::Figure(_) => false,
        PodUsage::OnDisk(file_system, _) => {
            Parts::on(file_system, layout).sum_of(stats, local_volumes(pod)).is_partial
        }
    }
}

/// The amounts that the pod leaves behind, by signal, and that may be freed after it has stopped: on disks its
/// containers' layers and logs and its `emptyDir` volumes; and tasks that were not reaped. Not memory: a process frees it as
/// it exits, and a volume as it is unmounted, which is waited for.
pub(crate) fn left_behind(pod: &Pod, stats: &PodStats, layout: FsLayout) -> Amounts {
    Signal::ALL.map(|signal| {
        let used = match (signal.resource().row().freed_by, signal.usage()) {
            (FreedBy::Exit, _) => 0,
            (FreedBy::Reaping | FreedBy::FileRemoval, PodUsage::Figure(figure)) => {
                figure(stats).unwrap_or(0)
            }
            (FreedBy::Reaping | FreedBy::FileRemoval, PodUsage::OnDisk(file_system, part)) => {
                part(Parts::on(file_system, layout).sum_of(stats, empty_dirs(pod)))
            }
        };
        signed(used)
    })
}

/// Whether the pod frees the resource only as its files are removed: those on a disk, and those of a volume in memory.
pub(crate) fn is_freed_by_file_removal(condition: PressureCondition, pod: &Pod) -> bool {
    Signal::of(condition).any(|signal| match signal.resource().row().freed_by {
        FreedBy::FileRemoval => true,
        FreedBy::Exit => has_volume_in_memory(pod),
        FreedBy::Reaping => false,
    })
}

/// The pod's volumes that are directories of the node: `hostPath`, `emptyDir` on disk, `configMap` and `gitRepo`.
pub(crate) fn local_volumes(pod: &Pod) -> impl Iterator<Item = &str> {
    let local = volumes(pod).filter(|volume| {
        is_empty_dir(volume)
            || volume.host_path.is_some()
            || volume.config_map.is_some()
            || volume.git_repo.is_some()
    });
    local.map(|volume| volume.name.as_str())
}

/// The local volumes that are removed with the pod.
fn empty_dirs(pod: &Pod) -> impl Iterator<Item = &str> {
    volumes(pod).filter(|volume| is_empty_dir(volume)).map(|volume| volume.name.as_str())
}

/// Whether one of the pod's volumes is an `emptyDir` in memory, which its exit does not free.
fn has_volume_in_memory(pod: &Pod) -> bool {
    let mut directories = volumes(pod).filter_map(|volume| volume.empty_dir.as_ref());
    directories.any(|directory| directory.medium.as_deref() == Some("Memory"))
}

/// All volumes of the pod.
pub(crate) fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// Whether a volume is an `emptyDir` on disk.
fn is_empty_dir(volume: &Volume) -> bool {
    let empty = volume.empty_dir.as_ref();
    empty.is_some_and(|dir| dir.medium.as_deref().is_none_or(str::is_empty))
}

/// The parts of a pod that are on a file system.
#[derive(Clone, Copy)]
struct Parts {
    rootfs: bool,
    logs: bool,
    volumes: bool,
}

impl Parts {
    const fn on(file_system: FileSystem, layout: FsLayout) -> Self {
        let all = Self { rootfs: true, logs: true, volumes: true };
        match (layout, file_system) {
            (FsLayout::One, _) => all,
            (FsLayout::ImageFs, FileSystem::Node) => Self { rootfs: false, ..all },
            (FsLayout::ImageFs, FileSystem::Image | FileSystem::Container) => {
                Self { rootfs: true, logs: false, volumes: false }
            }
            (FsLayout::Split, FileSystem::Node | FileSystem::Container) => all,
            // How much pods use of their images is unknown.
            (FsLayout::Split, FileSystem::Image) => {
                Self { rootfs: false, logs: false, volumes: false }
            }
        }
    }

    /// Whether any of the parts was measured, or there is nothing to measure. Not where layers are missing that the
    /// runtime should have reported: then they are missing for all pods, and the largest may be what fills the disk.
    fn are_known(self, stats: &PodStats) -> bool {
        if self.rootfs && stats.has_unknown_layers {
            return false;
        }
        let mut containers = stats.containers.iter();
        let of_containers = containers.any(|container| {
            self.rootfs && container.rootfs.is_some() || self.logs && container.logs.is_some()
        });
        let nothing = !(self.rootfs || self.logs || self.volumes);
        nothing || of_containers || self.volumes && !stats.volumes.is_empty()
    }

    fn sum_of<'a>(self, stats: &PodStats, volumes: impl Iterator<Item = &'a str>) -> DiskUse {
        let mut sum = DiskUse::default();
        for container in &stats.containers {
            let rootfs = container.rootfs.filter(|_| self.rootfs);
            let logs = container.logs.filter(|_| self.logs);
            sum = [rootfs, logs].into_iter().flatten().fold(sum, DiskUse::and);
        }
        if self.volumes {
            for name in volumes {
                let found = stats.volumes.iter().find(|volume| &*volume.name == name);
                sum = sum.and(found.map(|volume| volume.used).unwrap_or_default());
            }
        }
        sum
    }
}
