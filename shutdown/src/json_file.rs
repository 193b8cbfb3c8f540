//! JSON files that outlive the agent: replaced whole, and read with suspicion.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use winddown_files::{Survives, replace};

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file system refused.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} is not {what}; remove it", .path.display())]
    Syntax {
        /// What it should be.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of a newer agent.
    #[error(
        "{} has version {version} of its shape, this agent knows {known}; remove it",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest that this agent knows.
        known: u32,
    },
}

impl FileError {
    /// The file system refused to do this.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// One kind of files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonFile {
    /// What a file of this kind is, in words.
    pub(crate) what: &'static str,
    /// One that is larger is none of ours.
    pub(crate) largest: u64,
}

impl JsonFile {
    /// Reads what is at `path`; none if nothing is.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, FileError> {
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
        let bytes = fs::read(path).map_err(FileError::io("read", path))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|source| self.syntax(path, source))
    }

    /// Replaces what is at `path`, whole or not at all.
    ///
    /// # Errors
    /// The file system refused; what was there still is.
    pub(crate) fn write(
        &self,
        path: &Path,
        survives: Survives,
        value: &impl Serialize,
    ) -> Result<(), FileError> {
        let bytes = serde_json::to_vec(value).map_err(|source| self.syntax(path, source))?;
        replace(path, 0o644, survives, &bytes).map_err(FileError::io("write", path))
    }

    /// It holds something else.
    pub(crate) fn syntax(&self, path: &Path, source: serde_json::Error) -> FileError {
        FileError::Syntax { what: self.what, path: path.to_owned(), source }
    }
}
