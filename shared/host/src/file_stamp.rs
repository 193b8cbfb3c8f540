//! Tells versions of a file apart.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use winddown_shared::WallTime;

/// What changes when a file is written, replaced, or given to others: tells its versions apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of what `path` leads to: projected volumes are updated by replacing a link. `None` if it cannot be looked at.
    /// Blocking.
    pub fn at(path: &Path) -> Option<Self> {
        Some(Self::of(&std::fs::metadata(path).ok()?))
    }

    /// The stamp of the file with this metadata.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// The whole seconds from the last change to `now`, at most one too many. Negative if the clock was set back.
    pub fn age(&self, now: WallTime) -> i64 {
        now.as_second().saturating_sub(self.modified.0.max(self.changed.0))
    }
}
