//! A mark on disk from which the next agent learns of an earlier boot.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use winddown_host::{Durability, replace_private};
use winddown_shared::WallTime;

use crate::json_file::{FileError, JsonFile};

const NAME: &str = "boot.json";

/// The size of the file: no mark is longer, unless its boot ids are.
const TEXT_BYTES: usize = 1024;

const FILE: JsonFile = JsonFile { what: "the mark of a boot", largest: 64 << 10, is_public: false };

/// The boot in which the agent was last started, stored as `boot.json` in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootMark {
    /// The kernel's boot id.
    pub boot_id: String,
    /// When the agent was last started.
    pub started_at: WallTime,
    /// When it was stopped properly, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<WallTime>,
    /// Whether the disk was full when this was written, so that a shutdown may have left no report. [`store`](Self::store)
    /// sets it: store a mark again once the disk has room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_was_full: bool,
    /// The last boot before this one in which an agent ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousBoot>,
}

/// A boot that is over, according to a [`BootMark`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PreviousBoot {
    /// The kernel's boot id.
    pub boot_id: String,
    /// When its last agent was started; absent in marks of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_started_at: Option<WallTime>,
    /// When its last agent was stopped properly, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_stopped_at: Option<WallTime>,
    /// Whether the disk was full when that was recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_was_full: bool,
}

// === impl BootMark ===

impl BootMark {
    /// Creates the mark of an agent that starts in the boot `boot_id` and has `found` an earlier mark.
    pub fn after(found: Option<&Self>, boot_id: &str, now: WallTime) -> Self {
        let previous = found.and_then(|mark| mark.previous_boot(boot_id));
        let boot_id = boot_id.to_owned();
        Self { boot_id, started_at: now, stopped_at: None, disk_was_full: false, previous }
    }

    /// Returns the last boot before `boot_id` in which an agent ran.
    pub fn previous_boot(&self, boot_id: &str) -> Option<PreviousBoot> {
        if self.boot_id == boot_id {
            return self.previous.clone();
        }
        Some(PreviousBoot {
            boot_id: self.boot_id.clone(),
            agent_started_at: Some(self.started_at),
            agent_stopped_at: self.stopped_at,
            disk_was_full: self.disk_was_full,
        })
    }

    /// Reads the mark in `directory`, if there is one. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the content is something else.
    pub fn load(directory: &Path) -> Result<Option<Self>, FileError> {
        FILE.read(&directory.join(NAME))
    }

    /// Writes the mark into `directory`. When this returns, it survives a power cut. On a full disk it is written over the
    /// previous one, and says so. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the mark could not be written. The previous one is kept.
    pub fn store(&self, directory: &Path) -> Result<PathBuf, FileError> {
        let path = directory.join(NAME);
        let write = |text: &[u8]| replace_private(&path, Durability::PowerCut, text);
        self.store_by(&path, write)?;
        Ok(path)
    }

    /// Stores the mark by `write`.
    pub(super) fn store_by(
        &self,
        path: &Path,
        write: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<(), FileError> {
        // What the disk was before says nothing of a shutdown to come.
        let of_disk = |disk_was_full| Self { disk_was_full, ..self.clone() }.text(path);
        match write(&of_disk(false)?).map_err(FileError::io("write", path)) {
            Err(error) if error.is_full() => overwrite(path, &of_disk(true)?).map_err(|_| error),
            written => written,
        }
    }

    /// The content of the file, with spaces after it: a mark takes as much room as the one that it is written over.
    fn text(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let mut text = serde_json::to_vec(self).map_err(|source| FILE.syntax(path, source))?;
        text.resize(text.len().max(TEXT_BYTES), b' ');
        Ok(text)
    }
}

/// Writes over a file as long as `text`, which takes no room on the disk. It is smaller than a block, so that a power cut
/// leaves the old content or the new.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() != text.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all(text)?;
    file.sync_all()
}
