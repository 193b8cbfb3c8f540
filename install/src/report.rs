//! What an installation did, for people.

use std::fmt;

/// What was done, or with a dry run what would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// Nothing was touched; this is what would have been done.
    pub dry_run: bool,
    /// One line per file, directory and link, in the order in which they were done.
    pub changes: Vec<Change>,
    /// Commands of the host that were run.
    pub commands: Vec<String>,
    /// What the operator should know, whole sentences.
    pub notes: Vec<String>,
    /// Commands to run next.
    pub next: Vec<String>,
}

/// One thing done to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was done.
    pub action: Action,
    /// The path, without the root.
    pub path: String,
    /// Why, where it is not obvious.
    pub why: Option<&'static str>,
}

/// What was done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was not there.
    Created,
    /// It was ours, with another content or mode.
    Updated,
    /// A foreign file was replaced (`--force`).
    Replaced,
    /// It was as it should be, or is the operator's.
    Kept,
    /// It was ours and is gone.
    Removed,
}

impl InstallReport {
    /// Whether any file was changed.
    pub fn changed(&self) -> bool {
        self.changes.iter().any(|change| change.action != Action::Kept)
    }
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dry_run {
            writeln!(f, "Dry run: nothing is changed.")?;
        }
        for Change { action, path, why } in &self.changes {
            write!(f, "{:<9} {path}", action.verb(self.dry_run))?;
            match why {
                Some(why) => writeln!(f, "  ({why})")?,
                None => writeln!(f)?,
            }
        }
        for command in &self.commands {
            writeln!(f, "{:<9} {command}", if self.dry_run { "run" } else { "ran" })?;
        }
        if !self.changed() && self.commands.is_empty() {
            writeln!(f, "Nothing to do.")?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        if !self.next.is_empty() {
            writeln!(f, "Next:")?;
            for command in &self.next {
                writeln!(f, "  {command}")?;
            }
        }
        Ok(())
    }
}

impl Action {
    fn verb(self, planned: bool) -> &'static str {
        match (self, planned) {
            (Self::Created, false) => "created",
            (Self::Created, true) => "create",
            (Self::Updated, false) => "updated",
            (Self::Updated, true) => "update",
            (Self::Replaced, false) => "replaced",
            (Self::Replaced, true) => "replace",
            (Self::Kept, false) => "kept",
            (Self::Kept, true) => "keep",
            (Self::Removed, false) => "removed",
            (Self::Removed, true) => "remove",
        }
    }
}
