//! Pods from a directory of manifests.
//!
//! [`read_manifest`] turns one file into a pod, strictly. [`ManifestDirectory`] watches a directory
//! and publishes what it asks for as a state, [`DesiredManifests`]: a late reader misses
//! nothing but the steps in between.

mod defaults;
mod directory;
mod file;
mod identity;
mod problem_log;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod validate;
mod watch;
mod writers;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_shared::display::clean;
use winddown_shared::{Pod, WallTime};

pub use directory::ManifestDirectory;
pub use read::read_manifest;
use scan::Scanner;
pub use writers::{OthersMayWrite, Writers, others_may_write};

use winddown_yaml::Problems;

/// Reads the manifest in a file, which is never waited for.
///
/// # Errors
/// The file cannot be read, or is no manifest of a pod.
pub fn load_manifest(path: &Path, node_name: &str) -> Result<Pod, ManifestError> {
    read_manifest(path, &file::read(path)?, node_name)
}

/// What `directory` asks for now, at `wall`; files that are being written are read as they are.
///
/// # Errors
/// The directory cannot be listed.
pub fn load_directory(
    directory: &Path,
    node_name: &str,
    wall: WallTime,
) -> io::Result<DesiredManifests> {
    Scanner::new(directory.to_owned(), node_name.to_owned()).once(wall)
}

/// What the manifests directory asks for.
#[derive(Clone, Debug, Default)]
pub struct DesiredManifests {
    /// Counts the changes. 0: the directory has not been looked at yet, nothing is known. The first
    /// state has every file that was there and can be read.
    pub generation: u64,
    /// Every manifest is known. While it is false, some could not be read yet, or are wrong and were
    /// so when the agent started: a pod that was found running and is not in `pods` may be theirs,
    /// and is better left alone.
    ///
    /// A pod that was in `pods` and is not any more is not wanted, whatever this says: what cannot
    /// be read any more is kept.
    pub complete: bool,
    /// The pods, in the order of their files' names. No two have the same UID or full name.
    ///
    /// A changed manifest has a new UID, and its old pod is not here any more. An unchanged one is
    /// the same object as before.
    pub pods: Vec<Pod>,
    /// What is wrong, in the order of the files' names. The last good pod of a file that is wrong
    /// stays in `pods`.
    pub errors: Vec<ManifestProblem>,
    /// Entries that are no manifests by their names (`.yaml`, `.yml` and `.json` are), apart from
    /// hidden files and editors' backups.
    pub ignored: Vec<PathBuf>,
}

/// One thing that is wrong with a manifest, or with the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestProblem {
    /// The file, or the directory.
    pub file: PathBuf,
    /// Line, counted from 1, where there is one.
    pub line: Option<usize>,
    /// Column in characters, counted from 1, where there is one.
    pub column: Option<usize>,
    /// The field, as `spec.containers[0].name`; may be empty.
    pub field: String,
    /// What is wrong and what to write instead.
    pub message: String,
    /// The last good version of this file's pod is kept.
    pub kept: bool,
    /// When the file was first seen to be wrong in this way.
    pub since: WallTime,
}

/// Why a manifest gives no pod.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Arc<io::Error>,
    },
    /// Not a file that can be read without waiting for someone.
    #[error("{}: is {kind}: only regular files and links to them are manifests", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file is read, and wrong. Shows every problem on a line of its own.
    #[error("{0}")]
    Invalid(Problems),
}

// === impl ManifestProblem ===

impl ManifestProblem {
    /// One of the file or directory as a whole. What `message` quotes is made harmless.
    fn of_file(file: impl Into<PathBuf>, message: &str, kept: bool, since: WallTime) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
            field: String::new(),
            message: clean(message).into_owned(),
            kept,
            since,
        }
    }
}

impl std::fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", clean(&self.file.display().to_string()))?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        write!(f, " {}", self.message)
    }
}

// === impl ManifestError ===

impl ManifestError {
    /// The problems to show for it, at `since`.
    fn problems(&self, file: &Path, kept: bool, since: WallTime) -> Vec<ManifestProblem> {
        let whole = |message: &str| ManifestProblem::of_file(file, message, kept, since);
        match self {
            Self::Read { source, .. } => vec![whole(&format!("cannot be read: {source}"))],
            Self::NotRegular { kind, .. } => {
                let what = "only regular files and links to them are manifests";
                vec![whole(&format!("is {kind}: {what}"))]
            }
            Self::Invalid(problems) => {
                let one = |problem: &winddown_yaml::Problem| ManifestProblem {
                    line: problem.line,
                    column: problem.column,
                    field: problem.field.clone(),
                    ..whole(&problem.message)
                };
                problems.list().iter().map(one).collect()
            }
        }
    }
}
