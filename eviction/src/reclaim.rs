//! What can be reclaimed before a pod has to end.

use winddown_shared::{FsLayout, MemoryFigure, PodStats};

use crate::observation::MemoryAvailable;
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

/// How much of a pod's memory the kernel can take back so that more counts as available, in bytes, and by which figure
/// that is seen. None where it cannot be asked, or where nothing is gained.
#[must_use]
pub fn reclaimable_memory(
    counted: MemoryAvailable,
    pod: &PodStats,
    swap_free: u64,
) -> Option<(MemoryFigure, u64)> {
    let to_swap = pod.swappable?.min(swap_free);
    match counted {
        // File cache is available already.
        MemoryAvailable::MemAvailable => Some((MemoryFigure::Anonymous, to_swap)),
        MemoryAvailable::WorkingSet => {
            Some((MemoryFigure::WorkingSet, to_swap.saturating_add(pod.active_file?)))
        }
        // So is free swap.
        MemoryAvailable::MemAvailableAndSwap => None,
    }
}
