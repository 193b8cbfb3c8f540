//! The record of an installation, by which the next one distinguishes its own files from foreign
//! ones, and an uninstall removes exactly its own.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::assets::{PACKAGED_PROGRAMS, PROGRAMS};
use super::error::InstallError;
use super::read_if_there;
use super::tree::Tree;

/// The path of the record, below the root.
pub(super) const RECORD: &str = "/var/lib/winddown/install.json";

/// Everything that was installed, by path without the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstallRecord {
    /// The version of the file's format.
    pub(super) version: u32,
    pub(super) entries: BTreeMap<String, InstalledEntry>,
    /// Whether files were changed that systemd does not use yet: a command failed, or the installation was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unfinished: bool,
}

/// An installed directory, link or file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub(super) enum InstalledEntry {
    /// A directory that did not exist before.
    Directory,
    /// A symbolic link.
    Link { target: String },
    /// A file. It is ours as long as its hash is one of these. During an installation, both the old
    /// and the new hash are listed, so that it can be interrupted at any point.
    File { sha256: Vec<String> },
    /// A file that belongs to the operator once it was created.
    Configuration,
}

impl InstalledEntry {
    /// Whether it is a file with this content.
    pub(super) fn is_file(&self, sha256: &str) -> bool {
        matches!(self, Self::File { sha256: known } if known.iter().any(|one| one == sha256))
    }
}

impl InstallRecord {
    pub(super) fn load(tree: &Tree) -> Result<Self, InstallError> {
        let path = tree.resolve(RECORD)?;
        let Some(text) = read_if_there(&path)? else { return Ok(Self::default()) };
        let mut record: Self = serde_json::from_slice(&text)
            .map_err(|source| InstallError::Record { path, source })?;
        // A package that was installed later now owns the programs.
        if tree.is_packaged()? {
            for program in PROGRAMS {
                record.entries.remove(&format!("{PACKAGED_PROGRAMS}/{program}"));
            }
        }
        Ok(record)
    }

    pub(super) fn program_directory(&self) -> Option<&Path> {
        let agent = |path: &&Path| path.file_name() == Some("winddownd".as_ref());
        self.entries.keys().map(Path::new).find(agent)?.parent()
    }

    pub(super) fn store(&self, tree: &Tree) -> Result<(), InstallError> {
        let current = Self { version: 1, ..self.clone() };
        let text = serde_json::to_string_pretty(&current).map_err(|source| {
            InstallError::Record { path: tree.root().join(&RECORD[1..]), source }
        })?;
        tree.write(RECORD, 0o600, &mut (text + "\n").as_bytes(), false)
    }

    /// Whether we installed the file at `path` with this content.
    pub(super) fn owns(&self, path: &str, sha256: &str) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.is_file(sha256))
    }

    /// Returns this record merged with everything that `next` is about to install.
    pub(super) fn together_with(&self, next: &Self) -> Self {
        let mut both = self.clone();
        for (path, entry) in &next.entries {
            match (both.entries.get_mut(path), entry) {
                (
                    Some(InstalledEntry::File { sha256: old }),
                    InstalledEntry::File { sha256: new },
                ) => {
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
