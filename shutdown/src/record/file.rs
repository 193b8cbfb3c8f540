//! A record as a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{RecordPlace, RunRecord, VERSION};
use winddown_files::{Survives, replace};

/// The file's name in its directory.
const NAME: &str = "shutdown.json";

/// A record larger than this is not one of ours.
const LARGEST: u64 = 64 << 20;

/// A record as the file `shutdown.json` of a directory: complete or absent, whatever happens.
#[derive(Clone, Debug)]
pub struct RecordFile {
    path: PathBuf,
    volatile: bool,
}

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file system refused.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} is not the record of a shutdown; remove it", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of a newer agent.
    #[error(
        "{} has version {version} of its shape, this agent knows {VERSION}; remove it",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file is far too large for a record.
    #[error("{} is too large for the record of a shutdown ({size} bytes); remove it", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
}

// === impl RecordFile ===

impl RecordFile {
    /// The file in `directory`, which is created when a record is written.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        Self { path: directory.as_ref().join(NAME), volatile: false }
    }

    /// The file in `directory`, which is in memory (`tmpfs`): nothing is forced to a disk.
    pub fn in_memory(directory: impl AsRef<Path>) -> Self {
        Self { volatile: true, ..Self::in_directory(directory) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, what: &'static str) -> impl Fn(io::Error) -> RecordError + '_ {
        move |source| RecordError::Io { what, path: self.path.clone(), source }
    }

    fn syntax(&self, source: serde_json::Error) -> RecordError {
        RecordError::Syntax { path: self.path.clone(), source }
    }
}

impl RecordPlace for RecordFile {
    fn write(&self, record: &RunRecord) -> Result<(), RecordError> {
        let bytes = serde_json::to_vec(record).map_err(|source| self.syntax(source))?;
        let survives = if self.volatile { Survives::Process } else { Survives::PowerCut };
        let write = || replace(&self.path, 0o644, survives, &bytes);
        let written = match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.path.parent().unwrap_or(Path::new("."));
                fs::create_dir_all(directory).map_err(self.io("create the directory of"))?;
                write()
            }
            written => written,
        };
        written.map_err(self.io("write"))
    }

    fn read(&self) -> Result<Option<RunRecord>, RecordError> {
        let size = match fs::metadata(&self.path) {
            Ok(meta) if !meta.is_file() => {
                return Err(self.io("read")(io::Error::other("it is not a regular file")));
            }
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io("read")(source)),
        };
        if size > LARGEST {
            return Err(RecordError::TooLarge { path: self.path.clone(), size });
        }
        let bytes = fs::read(&self.path).map_err(self.io("read"))?;
        let record: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|source| self.syntax(source))?;
        let version = record.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        if version > VERSION {
            return Err(RecordError::Newer { path: self.path.clone(), version });
        }
        serde_json::from_value(record).map(Some).map_err(|source| self.syntax(source))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_volatile(&self) -> bool {
        self.volatile
    }
}
