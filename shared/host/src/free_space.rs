//! How much may still be written to a file system.

use std::io;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};

/// What is left of a file system for those who are not root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes; `None` if the file system has no fixed number.
    pub inodes: Option<u64>,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

impl FreeSpace {
    /// Fewer bytes are not enough for the state of a hundred pods and the reports, or for the output of pods.
    pub const FEW_BYTES: u64 = 64 * 1024 * 1024;
    /// The same for a file system in memory, which holds the record of a shutdown and a file for each pod that terminates.
    pub const FEW_BYTES_IN_MEMORY: u64 = 1024 * 1024;
    /// Fewer inodes are not enough.
    pub const FEW_INODES: u64 = 1000;

    /// Looks at the file system of a file or directory. Blocks, for as long as a dead disk does.
    ///
    /// # Errors
    /// `path` does not exist, or its file system does not answer.
    pub fn of(path: &Path) -> io::Result<Self> {
        let said = statvfs(path)?;
        Ok(Self {
            bytes: said.f_bavail.saturating_mul(said.f_frsize),
            inodes: (said.f_files > 0).then_some(said.f_favail),
            read_only: said.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    /// Whether fewer than `few_bytes` or too few inodes are left.
    pub fn is_low(&self, few_bytes: u64) -> bool {
        self.bytes < few_bytes || self.inodes.is_some_and(|inodes| inodes < Self::FEW_INODES)
    }

    /// Whether nothing can be written.
    pub fn is_full(&self) -> bool {
        self.bytes == 0 || self.inodes == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_low_on_bytes_or_on_inodes_and_one_without_inodes_on_bytes_alone() {
        let few = FreeSpace::FEW_BYTES;
        for (bytes, inodes, low, full) in [
            (few, Some(1000), false, false),
            (few - 1, Some(1000), true, false),
            (few, Some(999), true, false),
            (few, Some(0), true, true),
            (few, None, false, false),
            (0, None, true, true),
        ] {
            let left = FreeSpace { bytes, inodes, read_only: false };
            assert_eq!((left.is_low(few), left.is_full()), (low, full), "{left:?}");
        }
        assert!(FreeSpace::of(Path::new("/proc/no such file")).is_err());
    }
}
