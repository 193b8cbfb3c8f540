//! What can be reclaimed before a pod has to end.

use winddown_shared::FsLayout;

use crate::signal::{FileSystem, Signal};

/// Disk space that no pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reclaimable {
    /// Containers that have ended and will not be started again, with their logs, and what pods that
    /// have ended had in `emptyDir` volumes.
    DeadContainers,
    /// Log files that were rotated away.
    RotatedLogs,
    /// Images that no container uses, and that are not brand new.
    UnusedImages,
}

/// What helps against a shortage, in the order of reclaim.
#[must_use]
pub const fn reclaimable(signal: Signal, layout: FsLayout) -> &'static [Reclaimable] {
    use Reclaimable::{DeadContainers, RotatedLogs, UnusedImages};
    let Some(file_system) = signal.file_system() else { return &[] };
    match (layout, file_system) {
        (FsLayout::One, _) => &[DeadContainers, RotatedLogs, UnusedImages],
        // The logs of dead containers, and the volumes of ended pods.
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
