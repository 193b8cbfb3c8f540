//! JSON files that outlive the agent: replaced atomically, and not trusted when read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use winddown_host::{Durability, regular, replace, replace_private};

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// An operation on the file system failed.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// The operation that was attempted.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file's content is not what it should be.
    #[error("{} is not {what}; remove it", .path.display())]
    Syntax {
        /// What the file should be.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The file was written by a newer agent.
    #[error(
        "{} has format version {version}, this agent knows {known}; remove it",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's version.
        version: u32,
        /// The newest version that this agent knows.
        known: u32,
    },
}

/// Whether there was no space left, on the disk or in the quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl FileError {
    /// Whether there was no space left.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Returns a constructor of [`FileError::Io`] for the operation `what`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub struct JsonFile {
    /// A description of such a file, for error messages.
    pub what: &'static str,
    /// The largest size in bytes. A larger file cannot be one of ours.
    pub largest: u64,
    /// Whether everybody may read it. What names pods is its owner's.
    pub is_public: bool,
}

impl JsonFile {
    /// Reads the file at `path`, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the content is something else.
    pub fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, FileError> {
        let size = match fs::metadata(path) {
            Ok(meta) if !meta.is_file() => {
                let error = io::Error::other("it is not a regular file");
                return Err(FileError::io("read", path)(error));
            }
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::io("read", path)(error)),
        };
        if size > self.largest {
            let error = serde_json::Error::custom(format_args!("it has {size} bytes"));
            return Err(self.syntax(path, error));
        }
        let bytes = regular::read(path, self.largest).map_err(FileError::io("read", path))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|source| self.syntax(path, source))
    }

    /// Replaces the file at `path` atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The old content is kept.
    pub fn write(
        &self,
        path: &Path,
        survives: Durability,
        value: &impl Serialize,
    ) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(value).map_err(|source| self.syntax(path, source))?;
        let written = match self.is_public {
            true => replace(path, 0o644, survives, &bytes),
            false => replace_private(path, survives, &bytes),
        };
        written.map_err(FileError::io("write", path))
    }

    pub(crate) fn syntax(&self, path: &Path, source: serde_json::Error) -> FileError {
        FileError::Syntax { what: self.what, path: path.to_owned(), source }
    }
}
