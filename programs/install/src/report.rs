//! The report of an installation, for the user.

use std::fmt;

use winddown_shared::display::clean;

use super::next_step::NextStep;

/// What was done or, in a dry run, what would be done. Its texts may contain names that others chose; displaying it
/// makes them harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstallReport {
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
    /// The changes to files, directories and links, in order.
    pub changes: Vec<PathChange>,
    /// The commands that were run on the host.
    pub commands: Vec<String>,
    /// Notes for the operator, in whole sentences.
    pub notes: Vec<String>,
    /// What to do next, in order.
    pub next: Vec<NextStep>,
}

/// A change to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The kind of change.
    pub action: ChangeAction,
    /// The path, without the root.
    pub path: String,
    /// The reason, if it is not obvious.
    pub why: Option<&'static str>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// It did not exist and was created.
    Created,
    /// It was ours, and its content or mode was updated.
    Updated,
    /// A foreign file was replaced (`--force`).
    Replaced,
    /// It is as it should be, or belongs to the operator.
    Kept,
    /// It was ours and was removed.
    Removed,
}

impl InstallReport {
    /// Whether any file was changed.
    pub fn changed(&self) -> bool {
        self.changes.iter().any(|change| change.action != ChangeAction::Kept)
    }
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dry_run {
            writeln!(f, "Dry run: nothing is changed.")?;
        }
        for PathChange { action, path, why } in &self.changes {
            write!(f, "{:<9} {}", action.verb(self.dry_run), clean(path))?;
            match why {
                Some(why) => writeln!(f, "  ({why})")?,
                None => writeln!(f)?,
            }
        }
        for command in &self.commands {
            let verb = if self.dry_run { "run" } else { "ran" };
            writeln!(f, "{verb:<9} {}", clean(command))?;
        }
        if !self.changed() && self.commands.is_empty() {
            writeln!(f, "Nothing to do.")?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {}", clean(note))?;
        }
        if !self.next.is_empty() {
            writeln!(f, "Next:")?;
            for command in &self.next {
                writeln!(f, "  {}", clean(command))?;
            }
        }
        Ok(())
    }
}

impl ChangeAction {
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
