//! What is in memory.

use std::io;
use std::path::Path;

use rustix::fs::{FsWord, statfs};

/// The type of a tmpfs, see statfs(2).
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// Whether the file system that `path` is on is a tmpfs. Blocking.
///
/// # Errors
/// There is nothing at `path`, or it cannot be looked at.
pub fn is_on_tmpfs(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.f_type == TMPFS_MAGIC)
}
