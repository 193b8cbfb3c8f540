//! The problems of a file, described for the person who wrote it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_shared::display::clean;

use super::Position;

/// The maximum number of problems that are shown for one file.
pub(crate) const MOST_PROBLEMS: usize = 50;

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The line, counted from 1; none if the problem concerns the whole file.
    pub line: Option<usize>,
    /// The column in characters, counted from 1; none if the problem concerns the whole file.
    pub column: Option<usize>,
    /// The field, e.g. `spec.containers[0].name`; empty if the problem concerns no field.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// All problems of one file, in the order of its lines.
///
/// Displays one problem per line, each as `file:line:column: field: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: Arc<Path>,
    list: Vec<Problem>,
}

// === impl Problem ===

impl Problem {
    /// A problem of a field, at a position in the file.
    pub fn new(at: Position, field: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self {
            line: Some(at.line),
            column: Some(at.column),
            field: harmless(&field),
            message: harmless(&message),
        }
    }

    /// A problem of the file as a whole.
    pub fn of_file(message: impl fmt::Display) -> Self {
        Self { line: None, column: None, field: String::new(), message: harmless(&message) }
    }
}

/// Sanitizes text. Quotes come from the file and may hold terminal control sequences.
fn harmless(text: &impl fmt::Display) -> String {
    clean(&text.to_string()).into_owned()
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

// === impl Problems ===

impl Problems {
    /// The problems of `file`, sorted by position.
    pub fn new(file: impl Into<PathBuf>, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|p| (p.line, p.column));
        list.dedup();
        if list.len() > MOST_PROBLEMS {
            list.truncate(MOST_PROBLEMS);
            let last = list.last().map(|problem| (problem.line, problem.column));
            let (line, column) = last.unwrap_or_default();
            let message = "more errors follow; fix these first".to_owned();
            list.push(Problem { line, column, field: String::new(), message });
        }
        Self { file: file.into().into(), list }
    }

    /// The problems; never empty.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = harmless(&self.file.display());
        for (n, problem) in self.list.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{file}:")?;
            if let (Some(line), Some(column)) = (problem.line, problem.column) {
                write!(f, "{line}:{column}:")?;
            }
            write!(f, " {problem}")?;
        }
        Ok(())
    }
}
