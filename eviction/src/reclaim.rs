//! What can be reclaimed before a pod has to be evicted.

use winddown_shared::FsLayout;

use crate::signal::{FileSystem, Signal};

/// Disk space that no pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reclaimable {
    /// Containers that have terminated and will not be restarted, with their logs, and the `emptyDir` volumes of pods
    /// that have terminated.
    DeadContainers,
    /// Rotated log files.
    RotatedLogs,
    /// Images that no container uses, except very recent ones.
    UnusedImages,
}

/// What to reclaim for a signal, in this order.
#[must_use]
pub const fn reclaimable(signal: Signal, layout: FsLayout) -> &'static [Reclaimable] {
    use Reclaimable::{DeadContainers, RotatedLogs, UnusedImages};
    let Some(file_system) = signal.file_system() else { return &[] };
    match (layout, file_system) {
        (FsLayout::One, _) => &[DeadContainers, RotatedLogs, UnusedImages],
        // On this file system: the logs of dead containers, and the volumes of terminated pods.
        (FsLayout::ImageFs, FileSystem::Node) => &[DeadContainers, RotatedLogs],
        (FsLayout::ImageFs, FileSystem::Image | FileSystem::Container) => {
            &[DeadContainers, UnusedImages]
        }
        (FsLayout::Split, FileSystem::Image) => &[UnusedImages],
        (FsLayout::Split, FileSystem::Node | FileSystem::Container) => {
            &[DeadContainers, RotatedLogs]
        }
    }
}
