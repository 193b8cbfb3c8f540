//! What a pod uses of what runs short.

use winddown_shared::{DiskUse, FsLayout, Pod, PodStats};

use crate::observation::signed;
use crate::signal::{FileSystem, Resource, Signal};

#[cfg(test)]
mod tests;

/// What `pod` uses of what `signal` speaks of: bytes, inodes or processes.
///
/// A part that was not measured counts as nothing, as it does for the kubelet.
#[must_use]
pub fn usage(signal: Signal, pod: &Pod, stats: &PodStats, layout: FsLayout) -> i64 {
    let Some(file_system) = signal.file_system() else {
        return signed(match signal.resource() {
            Resource::Pids => stats.processes.unwrap_or(0),
            _ => stats.memory_working_set.unwrap_or(0),
        });
    };
    let used = Parts::on(file_system, layout).sum(pod, stats);
    signed(if signal.resource() == Resource::Inodes { used.inodes } else { used.bytes })
}

/// Volumes of the pod that are directories of the node: `hostPath`, `emptyDir` on disk, `configMap`
/// and `gitRepo`.
pub(crate) fn local_volumes(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let local = volumes.filter(|volume| {
        let on_disk = volume
            .empty_dir
            .as_ref()
            .is_some_and(|dir| dir.medium.as_deref().is_none_or(str::is_empty));
        on_disk
            || volume.host_path.is_some()
            || volume.config_map.is_some()
            || volume.git_repo.is_some()
    });
    local.map(|volume| volume.name.as_str())
}

/// What of a pod is on a file system.
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
            // What pods have of their images is not known.
            (FsLayout::Split, FileSystem::Image) => {
                Self { rootfs: false, logs: false, volumes: false }
            }
        }
    }

    fn sum(self, pod: &Pod, stats: &PodStats) -> DiskUse {
        let mut sum = DiskUse::default();
        for container in &stats.containers {
            let rootfs = container.rootfs.filter(|_| self.rootfs);
            let logs = container.logs.filter(|_| self.logs);
            sum = [rootfs, logs].into_iter().flatten().fold(sum, DiskUse::and);
        }
        if self.volumes {
            for name in local_volumes(pod) {
                let found = stats.volumes.iter().find(|volume| &*volume.name == name);
                sum = sum.and(found.map(|volume| volume.used).unwrap_or_default());
            }
        }
        sum
    }
}
