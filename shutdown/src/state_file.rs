//! The kubelet's record of the last shutdown, for tools that read it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use winddown_files::{Survives, replace};

#[cfg(test)]
mod tests;

/// The name the kubelet gives the file.
const NAME: &str = "graceful_node_shutdown_state";

/// Go's zero time, which stands for "not yet".
const UNSET: &str = "0001-01-01T00:00:00Z";

/// `graceful_node_shutdown_state`, byte for byte as the kubelet writes it on a node whose local
/// time is UTC. A start without an end after a boot means that the last shutdown was cut off.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
}

/// When the last shutdown began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// When the signal came.
    pub start: Option<WallTime>,
    /// When the pods were ended.
    pub end: Option<WallTime>,
}

/// Why the state file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
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
    #[error("{} is not a shutdown state file; remove it", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    start_time: String,
    end_time: String,
}

// === impl StateFile ===

impl StateFile {
    /// The file in `directory`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        Self { path: directory.as_ref().join(NAME) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file; when this returns it survives a power cut. Blocks on the disk.
    ///
    /// # Errors
    /// The file system refused; the old content is still there.
    pub fn store(&self, times: StateTimes) -> Result<(), StateFileError> {
        let text = |time: Option<WallTime>| time.map_or(UNSET.into(), |time| time.to_string());
        let raw = Raw { start_time: text(times.start), end_time: text(times.end) };
        let bytes = serde_json::to_vec(&raw)
            .map_err(|source| StateFileError::Syntax { path: self.path.clone(), source })?;
        replace(&self.path, 0o644, Survives::PowerCut, &bytes)
            .map_err(|source| StateFileError::Io { what: "write", path: self.path.clone(), source })
    }

    /// Reads the file. A file that does not exist holds no times.
    ///
    /// # Errors
    /// The file cannot be read or is something else.
    pub fn load(&self) -> Result<StateTimes, StateFileError> {
        let regular = |meta: fs::Metadata| match meta.is_file() {
            true => fs::read(&self.path),
            false => Err(io::Error::other("it is not a regular file")),
        };
        let bytes = match fs::metadata(&self.path).and_then(regular) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StateTimes::default());
            }
            Err(source) => {
                let path = self.path.clone();
                return Err(StateFileError::Io { what: "read", path, source });
            }
        };
        let syntax = |source| StateFileError::Syntax { path: self.path.clone(), source };
        let raw: Raw = serde_json::from_slice(&bytes).map_err(syntax)?;
        let time = |text: &str| match text {
            UNSET => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                syntax(serde::de::Error::custom(format_args!("{text:?} is not a time")))
            }),
        };
        Ok(StateTimes { start: time(&raw.start_time)?, end: time(&raw.end_time)? })
    }
}
