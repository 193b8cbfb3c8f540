//! What an operator said, in each place where the next agent of this boot looks for it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use winddown_shared::{BootClock, millis};

use crate::kept::KeptFile;

/// A value in several places. The newest one of this boot counts.
#[derive(Debug)]
pub(super) struct Stored {
    /// Best first.
    places: Vec<KeptFile>,
    boot_id: String,
    boot: BootClock,
}

/// What the places have of this boot.
pub(super) enum StoredWord<T> {
    /// Nothing was said, or no place took it.
    Nothing,
    Withdrawn,
    /// It is in force.
    Content(T),
}

/// A value in one place. A withdrawal is written like any other, because a missing file may be one that no disk took.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WordInPlace<T> {
    version: u32,
    boot_id: String,
    /// When it was written. Older agents did not record this of notices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_boot_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    withdrawn: bool,
    #[serde(flatten)]
    content: Option<T>,
}

// === impl Stored ===

impl Stored {
    pub(super) fn in_directories(
        directories: &[PathBuf],
        name: &str,
        boot_id: &str,
        boot: BootClock,
    ) -> Self {
        let places = directories.iter().map(|place| KeptFile::at(place.join(name))).collect();
        Self { places, boot_id: boot_id.to_owned(), boot }
    }

    /// Returns what this boot's agents stored last, and why a place cannot be read if no other has it. Blocks on the
    /// file system.
    pub(super) fn read<T: DeserializeOwned>(&self) -> (StoredWord<T>, Option<String>) {
        let mut problem = None;
        let mut newest: Option<WordInPlace<T>> = None;
        for place in &self.places {
            match place.read::<WordInPlace<T>>().and_then(WordInPlace::checked) {
                Ok(Some(entry)) if self.is_ours(&entry) => {
                    if newest
                        .as_ref()
                        .is_none_or(|newest| newest.given_boot_ms < entry.given_boot_ms)
                    {
                        newest = Some(entry);
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    problem = Some(format!("{} cannot be read: {error}", place.path().display()));
                }
            }
        }
        match newest {
            Some(WordInPlace { content: Some(content), withdrawn: false, .. }) => {
                (StoredWord::Content(content), None)
            }
            Some(_) => (StoredWord::Withdrawn, None),
            None => (StoredWord::Nothing, problem),
        }
    }

    /// Stores `content`, or that it is withdrawn.
    ///
    /// # Errors
    /// If no place takes it: the next agent does not know of the change.
    pub(super) async fn store<T: Serialize>(&self, content: Option<T>) -> Result<(), String> {
        let entry = WordInPlace {
            version: 1,
            boot_id: self.boot_id.clone(),
            given_boot_ms: Some(millis(self.boot.now())),
            withdrawn: content.is_none(),
            content,
        };
        let entry = serde_json::to_value(entry).map_err(|error| error.to_string())?;
        let (mut is_stored, mut problems) = (false, Vec::new());
        for place in &self.places {
            match place.store(Some(entry.clone())).await {
                Ok(()) => is_stored = true,
                Err(why) => problems.push(format!("{}: {why}", place.path().display())),
            }
        }
        if is_stored { Ok(()) } else { Err(problems.join("; ")) }
    }

    /// Whether an agent of this boot wrote it. Without a boot id, this boot cannot be told from another. The id stays
    /// the same over a soft reboot, and in a container that is restarted.
    fn is_ours<T>(&self, entry: &WordInPlace<T>) -> bool {
        let given = entry.given_boot_ms.map(Duration::from_millis);
        let is_of_system = given.is_none_or(|given| given >= self.boot.system_start());
        let is_of_boot = entry.boot_id == self.boot_id && !self.boot_id.is_empty();
        entry.version == 1 && is_of_boot && is_of_system
    }
}

// === impl WordInPlace ===

impl<T> WordInPlace<T> {
    /// Refuses an entry that says nothing.
    fn checked(found: Option<Self>) -> io::Result<Option<Self>> {
        match found {
            Some(Self { withdrawn: false, content: None, .. }) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it is incomplete"))
            }
            found => Ok(found),
        }
    }
}
