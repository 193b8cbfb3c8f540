//! A record stored as a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use winddown_host::Durability;

use super::{RecordStore, RunRecord, VERSION};
use crate::json_file::{FileError, JsonFile};

/// The file's name in its directory, for the run of a shutdown and for that of a drain.
const NAME: &str = "shutdown.json";
const NAME_OF_DRAIN: &str = "drain.json";

const FILE: JsonFile =
    JsonFile { what: "the record of a run", largest: 64 << 20, is_public: false };

/// A record stored as `shutdown.json` in a directory. The file is always complete or absent.
#[derive(Clone, Debug)]
pub struct RecordFile {
    path: PathBuf,
    volatile: bool,
}

impl RecordFile {
    /// Uses the file in `directory`, which is created when a record is written.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        Self { path: directory.as_ref().join(NAME), volatile: false }
    }

    /// Uses the file in `directory`, which must be in memory (`tmpfs`): writes are not synced to disk.
    pub fn in_memory(directory: impl AsRef<Path>) -> Self {
        Self { volatile: true, ..Self::in_directory(directory) }
    }

    /// Uses `drain.json` instead: a shutdown may begin while the node is drained.
    #[must_use]
    pub fn of_drain(self) -> Self {
        Self { path: self.path.with_file_name(NAME_OF_DRAIN), ..self }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl RecordStore for RecordFile {
    fn write(&self, record: &RunRecord) -> Result<(), FileError> {
        let survives = if self.volatile { Durability::Process } else { Durability::PowerCut };
        match FILE.write(&self.path, survives, record) {
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let directory = self.path.parent().unwrap_or(Path::new("."));
                fs::create_dir_all(directory)
                    .map_err(FileError::io("create the directory of", &self.path))?;
                FILE.write(&self.path, survives, record)
            }
            written => written,
        }
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        let Some(record) = FILE.read::<serde_json::Value>(&self.path)? else { return Ok(None) };
        let version = record.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        if version > VERSION {
            return Err(FileError::Newer { path: self.path.clone(), version, known: VERSION });
        }
        let record = serde_json::from_value(record);
        record.map(Some).map_err(|source| FILE.syntax(&self.path, source))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_volatile(&self) -> bool {
        self.volatile
    }
}
