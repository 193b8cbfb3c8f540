//! Whether files may have changed since a process read them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use winddown_host::{in_root, kernel};

/// More than the kernel's whole seconds leave out.
const ROUNDING_SECONDS: i64 = 1;

/// Whether one of these files or directories has changed since a process started, or nobody can say. It started `ticks` of
/// the kernel's clock after the boot, or 0 if that is unknown.
pub(super) fn is_edited_since(root: &Path, ticks: u64, files: &[PathBuf]) -> bool {
    let Some(started) = started_at(root, ticks) else { return true };
    files.iter().any(|file| match fs::metadata(in_root(root, file)) {
        Ok(found) => found.ctime() > started + ROUNDING_SECONDS,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    })
}

/// When the process started, in seconds since 1970.
fn started_at(root: &Path, ticks: u64) -> Option<i64> {
    let stat = kernel::read_to_string(root.join("proc/stat")).ok()?;
    let booted: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    let ticks = Some(ticks).filter(|ticks| *ticks > 0)?;
    let started = booted.checked_add(ticks / rustix::param::clock_ticks_per_second())?;
    i64::try_from(started).ok()
}
