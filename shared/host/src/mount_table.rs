//! Lists mount points, and unmounts them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{kernel, mounts};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use winddown_shared::RuntimeError;

/// The maximum number of processes that an error names.
const MAX_NAMED_PROCESSES: usize = 3;

/// Why a file system could not be unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// The kernel's list of mounts cannot be read.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The path of the list.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Processes use the mount.
    #[error("{} is in use by {holders}: stop them, or unmount it by hand", .point.display())]
    Busy {
        /// The mount point.
        point: PathBuf,
        /// The processes that use it.
        holders: String,
    },
    /// The kernel refuses to unmount it.
    #[error("cannot unmount {}", .point.display())]
    Refused {
        /// The mount point.
        point: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Lists the mount points at and below `path`, deepest first; of two at the same place the upper one first. `proc_root`
/// is the path of `/proc`. Blocking.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn below(proc_root: &Path, path: &Path) -> io::Result<Vec<PathBuf>> {
    let text = kernel::read(proc_root.join("self/mountinfo"))?;
    let points = mounts(&text).map(|mount| mount.point);
    let mut found: Vec<PathBuf> = points.filter(|point| point.starts_with(path)).collect();
    // The kernel lists mounts in the order of mounting, so upper ones come later.
    found.reverse();
    found.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(found)
}

/// Lists the mounts of a pod whose files are below `path`, for [`Runtime::mounts`](winddown_shared::Runtime). Blocking.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn of_pod(proc_root: &Path, path: &Path) -> Result<Vec<String>, RuntimeError> {
    let found = below(proc_root, path).map_err(|source| RuntimeError::Failed {
        what: format!("looking for mounts below {}", path.display()),
        source: Some(Arc::new(source)),
    })?;
    let mut texts: Vec<String> = found.iter().map(|point| point.display().to_string()).collect();
    // Two mounts at the same place count as one.
    texts.dedup();
    Ok(texts)
}

/// Unmounts everything at and below `path`. The mounted file systems keep their content. Blocking.
///
/// Never lazily: a lazily unmounted file system silently keeps its disk busy.
///
/// # Errors
/// A mount is in use or cannot be unmounted; the mounts that came before it in [`below`]'s order are gone.
pub fn unmount_below(proc_root: &Path, path: &Path) -> Result<(), UnmountError> {
    let found = below(proc_root, path).map_err(|source| UnmountError::Unreadable {
        path: proc_root.join("self/mountinfo"),
        source,
    })?;
    for point in found {
        match unmount(&point, UnmountFlags::NOFOLLOW) {
            // Not mounted any more: another process was faster.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::BUSY) => {
                let holders = holders(proc_root, &point);
                let holders = holders.unwrap_or_else(|| "no visible process".to_owned());
                return Err(UnmountError::Busy { point, holders });
            }
            Err(errno) => {
                return Err(UnmountError::Refused { point, source: errno.into() });
            }
        }
    }
    Ok(())
}

/// Describes the processes that use a mount or directory or have one of its files open, for a message; `None` if none is
/// seen. `proc_root` is the path of `/proc`, whose paths have no symbolic links. Blocking.
pub fn holders(proc_root: &Path, point: &Path) -> Option<String> {
    let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
    let mut named = Vec::new();
    let mut more = 0;
    for process in entries.map(|entry| entry.path()) {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let Some(pid) = pid.filter(|_| holds(&process, point)) else { continue };
        if named.len() < MAX_NAMED_PROCESSES {
            let name = kernel::read_to_string(process.join("comm")).unwrap_or_default();
            named.push(format!("process {pid} ({})", name.trim()));
        } else {
            more += 1;
        }
    }
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{} and {more} more", named.join(", "))),
    }
}

fn holds(process: &Path, point: &Path) -> bool {
    let leads_there = |link: PathBuf| {
        let to = fs::read_link(&link).ok().filter(|to| to.starts_with(point));
        let (Some(to), Ok(own)) = (to, fs::metadata(&link)) else { return false };
        // A process with mounts of its own may have another file at that path.
        match own.nlink() {
            // Deleted, so that the file system is all that can be compared.
            0 => fs::metadata(point).map_or(true, |here| own.dev() == here.dev()),
            _ => fs::metadata(to)
                .is_ok_and(|here| (own.dev(), own.ino()) == (here.dev(), here.ino())),
        }
    };
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    ["cwd", "root", "exe"].iter().any(|name| leads_there(process.join(name)))
        || files.map(|file| file.path()).any(leads_there)
}

#[cfg(test)]
mod tests;
