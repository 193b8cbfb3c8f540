//! Whether files may have changed since a process read them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use winddown_host::{in_root, kernel};

use super::processes::parent_and_start;

/// More than the kernel's whole seconds leave out.
const ROUNDING_SECONDS: i64 = 1;

/// Whether one of these files or directories has changed since the process started, or nobody can say.
pub(super) fn is_edited_since(root: &Path, pid: u32, files: &[PathBuf]) -> bool {
    let Some(started) = started_at(root, pid) else { return true };
    files.iter().any(|file| match fs::metadata(in_root(root, file)) {
        Ok(found) => found.ctime() > started + ROUNDING_SECONDS,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

/// When the process started, in seconds since 1970.
fn started_at(root: &Path, pid: u32) -> Option<i64> {
    let stat = kernel::read_to_string(root.join("proc/stat")).ok()?;
    let booted: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    let ticks = Some(parent_and_start(root, pid).1).filter(|ticks| *ticks > 0)?;
    let started = booted.checked_add(ticks / rustix::param::clock_ticks_per_second())?;
    i64::try_from(started).ok()
}
