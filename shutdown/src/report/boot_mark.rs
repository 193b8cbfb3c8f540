//! A mark on disk that tells the next agent of an earlier boot.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use winddown_shared::WallTime;

use winddown_files::{Survives, replace};

use super::StoreError;

const NAME: &str = "boot.json";

/// A mark larger than this is not one of ours.
const LARGEST: u64 = 64 << 10;

/// The boot in which the agent was started last, kept as `boot.json` in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootMark {
    /// The kernel's boot id.
    pub boot_id: String,
    /// When the agent was started last.
    pub started_at: WallTime,
    /// When it was stopped as it should be, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<WallTime>,
    /// The boot before this one in which an agent ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousBoot>,
}

/// A boot that is over, as a [`BootMark`] tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousBoot {
    /// The kernel's boot id.
    pub boot_id: String,
    /// When its last agent was stopped as it should be, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_stopped_at: Option<WallTime>,
}

// === impl BootMark ===

impl BootMark {
    /// The mark of an agent that starts in the boot `boot_id`, after `found`.
    pub fn after(found: Option<&Self>, boot_id: &str, now: WallTime) -> Self {
        let previous = found.and_then(|mark| mark.previous_boot(boot_id));
        Self { boot_id: boot_id.to_owned(), started_at: now, stopped_at: None, previous }
    }

    /// The boot before `boot_id`, if an agent ran in it.
    pub fn previous_boot(&self, boot_id: &str) -> Option<PreviousBoot> {
        if self.boot_id == boot_id {
            return self.previous.clone();
        }
        Some(PreviousBoot { boot_id: self.boot_id.clone(), agent_stopped_at: self.stopped_at })
    }

    /// Reads the mark in `directory`; none when there is none. Blocks on the disk.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn load(directory: &Path) -> Result<Option<Self>, StoreError> {
        let path = directory.join(NAME);
        let io = |source| StoreError::Io { what: "read", path: path.clone(), source };
        let size = match fs::metadata(&path) {
            Ok(meta) if !meta.is_file() => {
                return Err(io(io::Error::other("it is not a regular file")));
            }
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io(source)),
        };
        if size > LARGEST {
            return Err(StoreError::NotAMark {
                path,
                source: serde::de::Error::custom(format_args!("it has {size} bytes")),
            });
        }
        let bytes = fs::read(&path).map_err(io)?;
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|source| StoreError::NotAMark { path, source })
    }

    /// Writes the mark into `directory`; when this returns it survives a power cut. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// It is not on disk; the one before it still is.
    pub fn store(&self, directory: &Path) -> Result<PathBuf, StoreError> {
        let path = directory.join(NAME);
        let bytes = serde_json::to_vec(self)
            .map_err(|source| StoreError::NotAMark { path: path.clone(), source })?;
        match replace(&path, 0o644, Survives::PowerCut, &bytes) {
            Ok(()) => Ok(path),
            Err(source) => Err(StoreError::Io { what: "write", path, source }),
        }
    }
}
