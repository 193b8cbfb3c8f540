//! What an installation put where, so that the next one knows its own files from others', and an
//! uninstall takes away exactly those.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::assets::{PACKAGED_PROGRAMS, PROGRAMS};
use super::error::InstallError;
use super::tree::Tree;

/// Where the record is kept, below the root.
pub(super) const RECORD: &str = "/var/lib/winddown/install.json";

/// Everything that was installed, by path (without the root).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Format of this file.
    pub(super) version: u32,
    pub(super) entries: BTreeMap<String, Entry>,
}

/// One thing that was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(super) enum Entry {
    /// A directory that was not there before.
    Directory,
    /// A symbolic link.
    Link { target: String },
    /// A file. It is ours as long as its hash is one of these: while an installation is under way
    /// both the old and the new content are, so that it can be interrupted anywhere.
    File { sha256: Vec<String> },
    /// A file that belongs to the operator from the moment it was put there.
    Configuration,
}

impl Record {
    pub(super) fn load(tree: &Tree) -> Result<Self, InstallError> {
        let path = tree.resolve(RECORD)?;
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(InstallError::file("read", path)(error)),
        };
        let mut record: Self = serde_json::from_slice(&text)
            .map_err(|source| InstallError::Record { path, source })?;
        // A package that came later has taken the programs over.
        if tree.is_packaged()? {
            for program in PROGRAMS {
                record.entries.remove(&format!("{PACKAGED_PROGRAMS}/{program}"));
            }
        }
        Ok(record)
    }

    pub(super) fn store(&self, tree: &Tree) -> Result<(), InstallError> {
        let current = Self { version: 1, entries: self.entries.clone() };
        let text = serde_json::to_string_pretty(&current).map_err(|source| {
            InstallError::Record { path: tree.root().join(&RECORD[1..]), source }
        })?;
        tree.write(RECORD, 0o600, &mut (text + "\n").as_bytes(), false)
    }

    /// Whether the file at `path` with this content was put there by us.
    pub(super) fn owns(&self, path: &str, sha256: &str) -> bool {
        matches!(self.entries.get(path), Some(Entry::File { sha256: known }) if known.iter().any(|k| k == sha256))
    }

    /// This record with everything that `next` is about to put in place as well.
    pub(super) fn together_with(&self, next: &Self) -> Self {
        let mut both = self.clone();
        for (path, entry) in &next.entries {
            match (both.entries.get_mut(path), entry) {
                (Some(Entry::File { sha256: old }), Entry::File { sha256: new }) => {
                    old.extend(
                        new.iter().filter(|hash| !old.contains(hash)).cloned().collect::<Vec<_>>(),
                    );
                }
                _ => {
                    both.entries.insert(path.clone(), entry.clone());
                }
            }
        }
        both
    }
}
