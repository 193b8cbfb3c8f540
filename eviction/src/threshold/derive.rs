//! Thresholds that are derived from others.

use winddown_shared::FsLayout;

use super::Threshold;
use crate::signal::{FileSystem, Signal};

/// A configured threshold on `containerfs`, which has no effect: the threshold of the file system with the writable
/// layers counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IneffectiveThreshold {
    /// The signal of the threshold.
    pub signal: Signal,
    /// Whether it was a hard one.
    pub hard: bool,
}

/// Adds a copy of every hard threshold on the node's memory for the memory of its pods.
///
/// The copy has an effect where the pods' cgroup is limited to less than the node.
pub(crate) fn with_allocatable(mut thresholds: Vec<Threshold>) -> Vec<Threshold> {
    let copies: Vec<Threshold> = thresholds
        .iter()
        .filter(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard())
        .map(|threshold| Threshold { signal: Signal::AllocatableMemoryAvailable, ..*threshold })
        .collect();
    thresholds.extend(copies);
    thresholds
}

/// Replaces the thresholds on `containerfs` with those of the file system that holds the writable layers: `imagefs` if
/// it holds them, else `nodefs`.
pub(crate) fn with_container_fs(
    thresholds: &[Threshold],
    layout: FsLayout,
) -> (Vec<Threshold>, Vec<IneffectiveThreshold>) {
    let (bytes, inodes) = match layout {
        FsLayout::One | FsLayout::Split => (Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        FsLayout::ImageFs => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
    };
    let derives = [(bytes, Signal::ContainerFsAvailable), (inodes, Signal::ContainerFsInodesFree)];
    let is_container_fs = |signal: Signal| signal.file_system() == Some(FileSystem::Container);
    let overwritten = thresholds
        .iter()
        .filter(|threshold| is_container_fs(threshold.signal))
        .map(|threshold| IneffectiveThreshold {
            signal: threshold.signal,
            hard: threshold.is_hard(),
        })
        .collect();
    let kept = thresholds.iter().filter(|threshold| !is_container_fs(threshold.signal)).copied();
    let derived = thresholds.iter().filter_map(|threshold| {
        let (_, signal) = derives.into_iter().find(|(from, _)| *from == threshold.signal)?;
        Some(Threshold { signal, ..*threshold })
    });
    (kept.chain(derived).collect(), overwritten)
}
