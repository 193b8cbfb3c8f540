//! Pods from a directory of manifests.
//!
//! [`read_manifest`] turns one file into a pod, strictly. [`ManifestDirectory`] watches a directory and publishes the
//! desired pods as a state, [`DesiredManifests`]: a late reader only misses intermediate states.

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

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_shared::display::clean;
use winddown_shared::{Pod, WallTime};

pub use directory::{ManifestDirectory, others_may_write};
pub use read::read_manifest;
use scan::Scanner;

use winddown_yaml::Problems;

/// What to do about a [`ManifestError::Copy`].
const RENAME: &str = "rename it to have it run, or move it out of the directory";

/// Reads a manifest file, without ever waiting for its writer.
///
/// # Errors
/// The file cannot be read, or is not a manifest of a pod.
pub fn load_manifest(path: &Path, node_name: &str) -> Result<Pod, ManifestError> {
    read_manifest(path, &file::read(path)?, node_name)
}

/// Returns what `directory` defines now, at `wall`; files that are being written are read as they are.
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

/// The desired state according to the manifests directory.
#[derive(Clone, Debug, Default)]
pub struct DesiredManifests {
    /// Counts the changes. 0 means that the directory has not been scanned yet and nothing is known. The first state
    /// has every existing file that can be read.
    pub generation: u64,
    /// Whether every manifest is known. While it is false, some could not be read yet, or have been invalid since the
    /// agent started: a running pod that is not in `pods` may belong to one of them, and is better left alone. The
    /// errors of such files say so ([`ManifestProblem::may_run`]).
    ///
    /// A pod that was in `pods` and is not any more is not wanted, even while this is false: the pods of files that
    /// cannot be read any more are kept.
    pub complete: bool,
    /// Whether the directory, or a file that is being written, has not been read yet. False for a file that is invalid.
    pub awaited: bool,
    /// The pods, in the order of their file names. No two have the same UID or full name: of two files, the one whose
    /// pod was here before counts, or else the one with the shorter name, because a copy's name is the longer one, or
    /// else the first.
    ///
    /// A changed manifest has a new UID, and its old pod is removed. An unchanged one is the same object as before.
    pub pods: Vec<Pod>,
    /// The problems, in the order of the file names: each entry of the directory that defines no pod has one, unless
    /// its name begins with a dot. If a file is invalid, its last valid pod stays in `pods`.
    pub errors: Vec<ManifestProblem>,
}

/// A problem with a manifest, or with the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestProblem {
    /// The file, or the directory.
    pub file: PathBuf,
    /// The line, counted from 1, if known.
    pub line: Option<usize>,
    /// The column in characters, counted from 1, if known.
    pub column: Option<usize>,
    /// The field, e.g. `spec.containers[0].name`; may be empty.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// Whether the last valid version of this file's pod is kept.
    pub kept: bool,
    /// Whether a pod that an earlier agent started may be this file's: no pod is ended for want of a manifest while
    /// this is so.
    pub may_run: bool,
    /// When the file was first found to have this problem.
    pub since: WallTime,
}

/// Why a manifest cannot be turned into a pod.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// Not a regular file, so reading it might block.
    #[error("{}: is {kind}: only regular files and links to them are manifests", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// A program's own copy, by its name. Such files are not read.
    #[error("{}: is not run, its name is that of {kind}: {RENAME}", path.display())]
    Copy {
        /// The file.
        path: PathBuf,
        /// What such names belong to.
        kind: &'static str,
    },
    /// Nothing but comments and blanks.
    #[error("{}: {}", path.display(), winddown_yaml::EMPTY)]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The content is invalid. Displays every problem on a line of its own.
    #[error("{0}")]
    Invalid(Problems),
}

// === impl ManifestProblem ===

impl ManifestProblem {
    /// A problem of the file or directory as a whole. Text that `message` quotes is sanitized.
    fn of_file(file: impl Into<PathBuf>, message: &str, kept: bool, since: WallTime) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
            field: String::new(),
            message: clean(message).into_owned(),
            kept,
            may_run: false,
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
    /// Converts the error to problems, first seen at `since`.
    fn problems(&self, file: &Path, kept: bool, since: WallTime) -> Vec<ManifestProblem> {
        let whole = |message: &str| ManifestProblem::of_file(file, message, kept, since);
        match self {
            Self::Read { source, .. } => vec![whole(&format!("cannot be read: {source}"))],
            Self::NotRegular { kind, .. } => {
                let what = "only regular files and links to them are manifests";
                vec![whole(&format!("is {kind}: {what}"))]
            }
            Self::Copy { kind, .. } => {
                vec![whole(&format!("is not run, its name is that of {kind}: {RENAME}"))]
            }
            Self::Empty { .. } => vec![whole(winddown_yaml::EMPTY)],
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
