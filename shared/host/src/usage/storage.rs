//! Queries the file systems of pods and images.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel;
use tokio::time::Instant;
use winddown_shared::{FsLayout, FsStats, Mutex};

use super::{Reading, UsagePaths, mounts};
use crate::file::ReadError;

/// The age from which an answer says nothing any more: the others may have hung after it was given.
const ANSWER_MAX_AGE: Duration = Duration::from_secs(60);

/// The file systems of a node.
#[derive(Debug)]
pub(super) struct Disks {
    mountinfo: PathBuf,
    nodefs: PathBuf,
    imagefs: Option<PathBuf>,
    containerfs: Option<PathBuf>,
    /// The last known layout.
    known: Mutex<Option<LastAnswer>>,
}

#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    /// The st_dev of each directory: if they are the same, the layout is too.
    devices: Devices,
    layout: FsLayout,
}

type Devices = [Option<u64>; 3];

/// The answers of the file systems.
#[derive(Debug, Default)]
pub(super) struct DisksUsage {
    nodefs: Option<FsStats>,
    imagefs: Option<FsStats>,
    containerfs: Option<FsStats>,
    layout: Option<FsLayout>,
    problems: Vec<ReadError>,
}

impl Disks {
    pub(super) fn new(places: &UsagePaths) -> Self {
        Self {
            mountinfo: places.proc.join("self/mountinfo"),
            nodefs: places.nodefs.clone(),
            imagefs: places.imagefs.clone(),
            containerfs: places.containerfs.clone(),
            known: Mutex::default(),
        }
    }

    /// Queries all of them. Blocks for as long as a device takes.
    pub(super) fn read(&self) -> DisksUsage {
        let mut usage = DisksUsage::default();
        let mut ask = |path: &Path| match stats(path) {
            Ok(stats) => Some(stats),
            Err(error) => {
                usage.problems.push(error);
                None
            }
        };
        usage.nodefs = ask(&self.nodefs);
        let images = self.imagefs.as_deref();
        // Without images, containers write directly to the node's disk, and there is nothing to report.
        usage.imagefs = images.and_then(&mut ask);
        usage.containerfs = match (&self.containerfs, images) {
            (Some(path), Some(_)) => ask(path),
            _ => usage.imagefs,
        };
        usage.layout = self.layout();
        usage
    }

    /// The error of file systems that do not answer.
    pub(super) fn late(&self, after: Duration) -> ReadError {
        let source = std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("it, or the images' file system, has not answered within {after:?}"),
        );
        ReadError::unreadable(&self.nodefs, source)
    }

    /// Determines the layout; none if a directory does not exist.
    fn layout(&self) -> Option<FsLayout> {
        let Some(images) = &self.imagefs else { return Some(FsLayout::One) };
        let containers = self.containerfs.as_deref().unwrap_or(images);
        let paths = [self.nodefs.as_path(), images, containers];
        let devices = paths.map(|path| fs::metadata(path).ok().map(|found| found.dev()));
        let mut known = self.known.lock();
        if let Some(known) = known.as_ref().filter(|known| known.devices == devices) {
            return Some(known.layout);
        }
        let [node, images, containers] = self.systems(paths, devices)?;
        let layout = layout(node, images, containers);
        *known = Some(LastAnswer { devices, layout });
        Some(layout)
    }

    /// Identifies the file systems: by the mount table, or by st_dev if the table does not have all of them.
    fn systems(&self, paths: [&Path; 3], devices: Devices) -> Option<[u64; 3]> {
        let table = kernel::read(&self.mountinfo).unwrap_or_default();
        let mounted = paths.map(|path| {
            let (major, minor) = mounts::device_of(&table, &fs::canonicalize(path).ok()?)?;
            Some(u64::from(major) << 32 | u64::from(minor))
        });
        let all = |systems: Devices| match systems {
            [Some(a), Some(b), Some(c)] => Some([a, b, c]),
            _ => None,
        };
        all(mounted).or_else(|| all(devices))
    }
}

impl DisksUsage {
    pub(super) fn enter(self, reading: &mut Reading) {
        let is_recent = |stats: &FsStats| stats.at.is_some_and(|at| at.elapsed() < ANSWER_MAX_AGE);
        reading.stats.nodefs = self.nodefs.filter(is_recent);
        reading.stats.imagefs = self.imagefs.filter(is_recent);
        reading.stats.containerfs = self.containerfs.filter(is_recent);
        reading.stats.layout = self.layout;
        reading.problems.extend(self.problems);
    }
}

fn layout(node: u64, images: u64, containers: u64) -> FsLayout {
    if images == node && containers == node {
        FsLayout::One
    } else if images == containers {
        FsLayout::ImageFs
    } else {
        FsLayout::Split
    }
}

/// The capacity of a file system and what is left. Blocks for as long as its device takes.
fn stats(path: &Path) -> Result<FsStats, ReadError> {
    let said = rustix::fs::statvfs(path).map_err(|error| ReadError::unreadable(path, error))?;
    let bytes = |blocks: u64| blocks.saturating_mul(said.f_frsize);
    // Some (btrfs) create inodes on demand and report no count.
    let has_inodes = said.f_files > 0;
    Ok(FsStats {
        at: Some(Instant::now()),
        capacity_bytes: Some(bytes(said.f_blocks)),
        available_bytes: Some(bytes(said.f_bavail)),
        used_bytes: Some(bytes(said.f_blocks.saturating_sub(said.f_bfree))),
        inodes: has_inodes.then_some(said.f_files),
        inodes_free: has_inodes.then_some(said.f_ffree),
    })
}

#[cfg(test)]
mod tests;
