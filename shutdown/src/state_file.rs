//! The kubelet's record of the last shutdown, for tools that read it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use winddown_host::Durability;
use winddown_shared::WallTime;

use crate::json_file::{FileError, JsonFile};

#[cfg(test)]
mod tests;

/// The kubelet's name for the file.
const NAME: &str = "graceful_node_shutdown_state";

const FILE: JsonFile =
    JsonFile { what: "a shutdown state file", largest: 64 << 10, is_public: true };

/// Go's zero time, which stands for "not yet".
const UNSET: &str = "0001-01-01T00:00:00Z";

/// The file `graceful_node_shutdown_state`, byte for byte as the kubelet writes it on a node whose local
/// time is UTC. If it has a start but no end after a boot, the last shutdown was cut off.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
}

/// When the last shutdown began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// When the signal arrived.
    pub start: Option<WallTime>,
    /// When all pods had stopped or their time was over.
    pub end: Option<WallTime>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    start_time: String,
    end_time: String,
}

// === impl StateFile ===

impl StateFile {
    /// Uses the file in `directory`.
    pub fn in_directory(directory: impl AsRef<Path>) -> Self {
        Self { path: directory.as_ref().join(NAME) }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file. When this returns, the content survives a power cut. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The old content is kept.
    pub fn store(&self, times: StateTimes) -> Result<(), FileError> {
        let text = |time: Option<WallTime>| time.map_or(UNSET.into(), |time| time.to_string());
        let raw = Raw { start_time: text(times.start), end_time: text(times.end) };
        FILE.write(&self.path, Durability::PowerCut, &raw)
    }

    /// Reads the file. If it does not exist, there are no times.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the content is something else.
    pub fn load(&self) -> Result<StateTimes, FileError> {
        let Some(raw) = FILE.read::<Raw>(&self.path)? else { return Ok(StateTimes::default()) };
        let time = |text: &str| match text {
            UNSET => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let why = serde::de::Error::custom(format_args!("{text:?} is not a time"));
                FILE.syntax(&self.path, why)
            }),
        };
        Ok(StateTimes { start: time(&raw.start_time)?, end: time(&raw.end_time)? })
    }
}
