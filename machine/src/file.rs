//! Where the kernel's files are, and how they are read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An upper bound for the files that are read here, in case one is not what it should be.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Where the machine is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// The kernel's process file system, `/proc`.
    pub proc: PathBuf,
    /// The kernel's device file system, `/sys`.
    pub sys: PathBuf,
    /// A directory on the file system that pods write to: the node's own, `nodefs` to a kubelet.
    pub storage: PathBuf,
}

/// Why a fact about the machine is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A file, or a file system, does not answer.
    #[error("cannot read {}: the agent has to see the host's /proc and /sys, and its own state directory", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("{}: {what}; this kernel's file is not understood", .path.display())]
    Odd {
        /// The file.
        path: PathBuf,
        /// What was looked for and not found.
        what: String,
    },
}

// === impl Roots ===

impl Roots {
    /// The running machine, whose pods write to the file system of `storage`.
    pub fn of_host(storage: impl Into<PathBuf>) -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), storage: storage.into() }
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

    /// Whether the file is not there at all.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The text of one of the kernel's files, at most its first 4 MiB. Blocks, but not for long: nothing
/// here is on a disk.
pub(crate) fn text(path: &Path) -> Result<String, ReadError> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| ReadError::unreadable(path, error))?;
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| ReadError::unreadable(path, error))?;
    Ok(text)
}

/// The number that is all of a file.
pub(crate) fn number(path: &Path) -> Result<i64, ReadError> {
    let text = text(path)?;
    match text.trim().parse() {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(ReadError::odd(path, "holds no number")),
    }
}
