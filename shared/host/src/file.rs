//! The paths of the kernel's files, and reading them.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::kernel;

/// An upper bound for the size of files, in case one is not what it should be.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// The directories from which facts about the machine are read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Roots {
    /// The kernel's process file system, `/proc`.
    pub proc: PathBuf,
    /// The kernel's device file system, `/sys`.
    pub sys: PathBuf,
    /// A directory on the file system that pods write to: the node's own, which a kubelet calls `nodefs`.
    pub storage: PathBuf,
}

/// Why a fact about the machine is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A file or a file system cannot be read.
    #[error("cannot read {}: the agent has to see the host's /proc and /sys, and its own state directory", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{}: {what}; the format of this kernel's file is unknown", .path.display())]
    Odd {
        /// The file.
        path: PathBuf,
        /// What is wrong with the content.
        what: String,
    },
}

// === impl Roots ===

impl Roots {
    /// The running machine, whose pods write to the file system of `storage`.
    pub fn of_host(storage: impl Into<PathBuf>) -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), storage: storage.into() }
    }

    /// Whether the kernel enforces AppArmor profiles. It does so from its start or not at all.
    pub fn has_app_armor(&self) -> bool {
        let enabled = text(&self.sys.join("module/apparmor/parameters/enabled"));
        self.sys.join("kernel/security/apparmor").exists()
            && enabled.is_ok_and(|enabled| enabled.starts_with('Y'))
    }
}

// === impl ReadError ===

impl ReadError {
    pub(crate) fn unreadable(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Unreadable { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn odd(path: &Path, what: impl Into<String>) -> Self {
        Self::Odd { path: path.to_owned(), what: what.into() }
    }

    /// Whether the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Reads one of the kernel's files, at most its first 4 MiB. Blocks, but not for long: none of these files is on a
/// disk.
pub(crate) fn text(path: &Path) -> Result<String, ReadError> {
    let mut text = String::new();
    let file = kernel::open(path).map_err(|error| ReadError::unreadable(path, error))?;
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| ReadError::unreadable(path, error))?;
    Ok(text)
}

/// Reads a file that consists of one number.
pub(crate) fn number(path: &Path) -> Result<i64, ReadError> {
    let text = text(path)?;
    match text.trim().parse() {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(ReadError::odd(path, "contains no number")),
    }
}
