//! Thresholds that follow from others.

use winddown_shared::FsLayout;

use super::Threshold;
use crate::signal::Signal;

/// A threshold on `containerfs` that was configured and has no effect: the one of the file system
/// that the writable layers are on counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten {
    /// Which.
    pub signal: Signal,
    /// Whether it was a hard one.
    pub hard: bool,
}

/// For every hard threshold on the node's memory, the same on the memory of its pods.
///
/// It has effect where the pods' cgroup is limited to less than the node.
pub(crate) fn with_allocatable(mut thresholds: Vec<Threshold>) -> Vec<Threshold> {
    let copies: Vec<Threshold> = thresholds
        .iter()
        .filter(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard())
        .map(|threshold| Threshold { signal: Signal::AllocatableMemoryAvailable, ..*threshold })
        .collect();
    thresholds.extend(copies);
    thresholds
}

/// The thresholds with those on `containerfs` taken from the file system that the writable layers
/// are on: `imagefs` where it is theirs too, else `nodefs`.
pub(crate) fn with_container_fs(
    thresholds: &[Threshold],
    layout: FsLayout,
) -> (Vec<Threshold>, Vec<Overwritten>) {
    let (bytes, inodes) = match layout {
        FsLayout::One | FsLayout::Split => (Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        FsLayout::ImageFs => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
    };
    let is_container_fs =
        |signal| matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree);
    let overwritten = thresholds
        .iter()
        .filter(|threshold| is_container_fs(threshold.signal))
        .map(|threshold| Overwritten { signal: threshold.signal, hard: threshold.is_hard() })
        .collect();
    let kept = thresholds.iter().filter(|threshold| !is_container_fs(threshold.signal)).copied();
    let derived = thresholds.iter().filter_map(|threshold| {
        let signal = match threshold.signal {
            signal if signal == bytes => Signal::ContainerFsAvailable,
            signal if signal == inodes => Signal::ContainerFsInodesFree,
            _ => return None,
        };
        Some(Threshold { signal, ..*threshold })
    });
    (kept.chain(derived).collect(), overwritten)
}
