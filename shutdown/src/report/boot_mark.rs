//! A mark on disk from which the next agent learns of an earlier boot.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use winddown_host::Durability;
use winddown_shared::WallTime;

use crate::json_file::{FileError, JsonFile};

const NAME: &str = "boot.json";

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
}

// === impl BootMark ===

impl BootMark {
    /// Creates the mark of an agent that starts in the boot `boot_id` and has `found` an earlier mark.
    pub fn after(found: Option<&Self>, boot_id: &str, now: WallTime) -> Self {
        let previous = found.and_then(|mark| mark.previous_boot(boot_id));
        Self { boot_id: boot_id.to_owned(), started_at: now, stopped_at: None, previous }
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
        })
    }

    /// Reads the mark in `directory`, if there is one. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or the content is something else.
    pub fn load(directory: &Path) -> Result<Option<Self>, FileError> {
        FILE.read(&directory.join(NAME))
    }

    /// Writes the mark into `directory`. When this returns, it survives a power cut. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Fails if the mark could not be written. The previous one is kept.
    pub fn store(&self, directory: &Path) -> Result<PathBuf, FileError> {
        let path = directory.join(NAME);
        FILE.write(&path, Durability::PowerCut, self)?;
        Ok(path)
    }
}
