//! Decides what to do from the desired and the current state. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use super::assets::{Asset, AssetKind, Body, FileOwner, LOGIND_DROP_IN, MASK};
use super::error::Conflict;
use super::record::{InstallRecord, InstalledEntry};
use super::report::{ChangeAction, PathChange};
use super::tree::{FoundPath, digest};

#[derive(Debug, Default)]
pub(super) struct InstallPlan {
    pub(super) steps: Vec<PlannedStep>,
    /// The record of our files once all steps are done.
    pub(super) record: InstallRecord,
    /// The conflicts; if there are any, nothing may be done.
    pub(super) conflicts: Vec<Conflict>,
}

/// One step, and how it is reported.
#[derive(Debug)]
pub(super) struct PlannedStep {
    pub(super) change: PathChange,
    pub(super) work: InstallWork,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum InstallWork {
    Nothing,
    MakeDirectory {
        mode: u32,
    },
    Write {
        mode: u32,
        body: Body,
        keep_old: bool,
    },
    SetMode {
        mode: u32,
    },
    Link {
        target: &'static str,
    },
    /// Removes a file or link.
    Remove,
    RemoveDirectory,
}

/// Adds the directories in which `items` are, parents first; each path occurs once.
pub(super) fn with_parents(items: Vec<Asset>) -> Vec<Asset> {
    let mut whole: Vec<Asset> = Vec::with_capacity(items.len() * 2);
    for item in items {
        for (at, _) in item.path.match_indices('/').skip(1) {
            let parent = &item.path[..at];
            if !whole.iter().any(|known| known.path == parent) {
                let kind = AssetKind::Directory { mode: 0o755 };
                whole.push(Asset { path: parent.to_owned(), kind });
            }
        }
        whole.push(item);
    }
    whole
}

/// Makes the plan.
///
/// `found` has the state of every path in `items` (see [`with_parents`]) and in `record`.
pub(super) fn plan(
    items: Vec<Asset>,
    found: &BTreeMap<String, FoundPath>,
    record: &InstallRecord,
    force: bool,
) -> InstallPlan {
    let mut plan = InstallPlan::default();
    for item in items {
        let there = found.get(&item.path).unwrap_or(&FoundPath::Nothing);
        let Asset { path, kind } = item;
        let outcome = match kind {
            AssetKind::Directory { mode } => directory(mode, there, record.entries.get(&path)),
            AssetKind::Link { target } => link(target, there, record.entries.get(&path), force),
            AssetKind::File { mode, body, owner } => {
                file(&path, mode, body, &owner, there, record, force)
            }
        };
        match outcome {
            Ok((action, work, entry)) => {
                if let Some(entry) = entry {
                    plan.record.entries.insert(path.clone(), entry);
                }
                let is_operators =
                    plan.record.entries.get(&path) == Some(&InstalledEntry::Configuration);
                let why = (is_operators && action == ChangeAction::Kept).then_some("yours");
                plan.steps.push(PlannedStep { change: PathChange { action, path, why }, work });
            }
            Err(why) => plan.conflicts.push(Conflict { path, why }),
        }
    }
    retire(&mut plan, found, record);
    plan
}

type Outcome = Result<(ChangeAction, InstallWork, Option<InstalledEntry>), &'static str>;

fn directory(mode: u32, there: &FoundPath, recorded: Option<&InstalledEntry>) -> Outcome {
    match there {
        FoundPath::Nothing => Ok((
            ChangeAction::Created,
            InstallWork::MakeDirectory { mode },
            Some(InstalledEntry::Directory),
        )),
        // A link to a directory is as good: only the last component of a path is not followed.
        FoundPath::Directory | FoundPath::Link(_) => {
            Ok((ChangeAction::Kept, InstallWork::Nothing, recorded.cloned()))
        }
        FoundPath::File { .. } | FoundPath::Other => Err("it is not a directory; move it away"),
    }
}

fn link(
    target: &'static str,
    there: &FoundPath,
    recorded: Option<&InstalledEntry>,
    force: bool,
) -> Outcome {
    let entry = Some(InstalledEntry::Link { target: target.to_owned() });
    match there {
        FoundPath::Nothing => Ok((ChangeAction::Created, InstallWork::Link { target }, entry)),
        FoundPath::Link(to) if to.as_os_str() == target => {
            Ok((ChangeAction::Kept, InstallWork::Nothing, entry))
        }
        // Our own link, to the unit's earlier path, or our own file of an installation without a package.
        _ if is_recorded(there, recorded) => {
            Ok((ChangeAction::Updated, InstallWork::Link { target }, entry))
        }
        // For systemd only the name counts, and "systemctl enable" may write /lib or /usr/lib.
        FoundPath::Link(to) if to.file_name() == Path::new(target).file_name() => {
            Ok((ChangeAction::Kept, InstallWork::Nothing, None))
        }
        FoundPath::Link(_) | FoundPath::File { .. } if force => {
            Ok((ChangeAction::Replaced, InstallWork::Link { target }, entry))
        }
        FoundPath::Link(_) => Err("it leads elsewhere; --force replaces it"),
        FoundPath::File { .. } => Err("it is not a link; --force replaces it"),
        FoundPath::Directory | FoundPath::Other => Err("it is not a link; move it away"),
    }
}

/// Whether an installation made what is there.
fn is_recorded(there: &FoundPath, recorded: Option<&InstalledEntry>) -> bool {
    match (there, recorded) {
        (FoundPath::File { sha256, .. }, Some(entry)) => entry.is_file(sha256),
        (FoundPath::Link(to), Some(InstalledEntry::Link { target })) => {
            to.as_os_str() == target.as_str()
        }
        _ => false,
    }
}

fn file(
    path: &str,
    mode: u32,
    body: Body,
    owner: &FileOwner,
    there: &FoundPath,
    record: &InstallRecord,
    force: bool,
) -> Outcome {
    let wanted = body.sha256();
    let is_text = matches!(body, Body::Text(_));
    let entry = match owner {
        FileOwner::Operator => InstalledEntry::Configuration,
        FileOwner::Install | FileOwner::Once { .. } => {
            InstalledEntry::File { sha256: vec![wanted.clone()] }
        }
    };
    let is_installs = *owner == FileOwner::Install;
    let write = |keep_old| InstallWork::Write { mode, body, keep_old };
    match there {
        FoundPath::Nothing => Ok((ChangeAction::Created, write(false), Some(entry))),
        FoundPath::File { sha256, .. } if !is_installs => match owner {
            FileOwner::Once { instead_of: Some(old) } if old.sha256 == *sha256 => {
                Ok((ChangeAction::Updated, write(old.keep), Some(entry)))
            }
            _ => Ok((ChangeAction::Kept, InstallWork::Nothing, record.entries.get(path).cloned())),
        },
        FoundPath::File { sha256, mode: old, .. } if *sha256 == wanted => {
            // A text file with our content is ours even if it is not recorded. A program may belong
            // to a package, and stays the package's.
            let ours = is_text || record.owns(path, sha256);
            let (action, work) = if *old == mode || !ours {
                (ChangeAction::Kept, InstallWork::Nothing)
            } else {
                (ChangeAction::Updated, InstallWork::SetMode { mode })
            };
            Ok((action, work, ours.then_some(entry)))
        }
        // A link is one that an installation beside a package made.
        _ if is_recorded(there, record.entries.get(path)) => {
            Ok((ChangeAction::Updated, write(false), Some(entry)))
        }
        FoundPath::Link(to) if to.as_os_str() == MASK && is_installs => {
            Err("it is masked; remove that link first")
        }
        FoundPath::Link(_) if !is_installs => Ok((ChangeAction::Kept, InstallWork::Nothing, None)),
        FoundPath::File { .. } | FoundPath::Link(_) if force => {
            Ok((ChangeAction::Replaced, write(true), Some(entry)))
        }
        FoundPath::File { signed, .. } if *signed || record.entries.contains_key(path) => {
            Err("it was edited; --force replaces it and keeps the old one beside it")
        }
        FoundPath::File { .. } | FoundPath::Link(_) => {
            Err("it is not winddown's; --force replaces it and keeps the old one beside it")
        }
        FoundPath::Directory | FoundPath::Other => Err("it is not a file; move it away"),
    }
}

/// Removes what an earlier installation created and this one does not need (because of another
/// runtime, or another directory for the programs).
fn retire(plan: &mut InstallPlan, found: &BTreeMap<String, FoundPath>, record: &InstallRecord) {
    let mut steps = Vec::new();
    // Children sort after their parents, so in reverse order a directory is empty when it is reached.
    for (path, entry) in record.entries.iter().rev() {
        if plan.steps.iter().any(|step| step.change.path == *path)
            || plan.conflicts.iter().any(|conflict| conflict.path == *path)
        {
            continue;
        }
        match entry {
            // Earlier versions installed it. It now belongs to the agent, which may need it.
            InstalledEntry::File { .. } if path == LOGIND_DROP_IN => {}
            // Unmask it: the new runtime needs the masked file.
            InstalledEntry::Link { target } if target == MASK => {
                let there = found.get(path).unwrap_or(&FoundPath::Nothing);
                steps.extend(removal(path, entry, there, record, false));
            }
            // The unit was enabled earlier; disabling it is left to "systemctl disable".
            InstalledEntry::Link { .. } | InstalledEntry::Configuration => {
                plan.record.entries.insert(path.clone(), entry.clone());
            }
            InstalledEntry::File { .. } | InstalledEntry::Directory => {
                let there = found.get(path).unwrap_or(&FoundPath::Nothing);
                steps.extend(removal(path, entry, there, record, false));
            }
        }
    }
    plan.steps.extend(steps);
}

/// Returns the step that removes a recorded entry; `None` if it no longer exists.
pub(super) fn removal(
    path: &str,
    entry: &InstalledEntry,
    there: &FoundPath,
    record: &InstallRecord,
    force: bool,
) -> Option<PlannedStep> {
    let (action, why, work) = match (entry, there) {
        (_, FoundPath::Nothing) => return None,
        (InstalledEntry::Directory, FoundPath::Directory) => {
            (ChangeAction::Removed, None, InstallWork::RemoveDirectory)
        }
        (InstalledEntry::Link { target }, FoundPath::Link(to))
            if to.as_os_str() == target.as_str() =>
        {
            (ChangeAction::Removed, None, InstallWork::Remove)
        }
        (InstalledEntry::File { .. }, FoundPath::File { sha256, .. })
            if force || record.owns(path, sha256) =>
        {
            (ChangeAction::Removed, None, InstallWork::Remove)
        }
        (InstalledEntry::File { .. }, FoundPath::File { .. }) => {
            (ChangeAction::Kept, Some("changed since it was installed"), InstallWork::Nothing)
        }
        (InstalledEntry::Configuration, _) => {
            (ChangeAction::Kept, Some("yours; --purge removes it"), InstallWork::Nothing)
        }
        _ => (ChangeAction::Kept, Some("not what was installed"), InstallWork::Nothing),
    };
    Some(PlannedStep { change: PathChange { action, path: path.to_owned(), why }, work })
}

impl Body {
    fn sha256(&self) -> String {
        match self {
            Self::Copy { sha256, .. } => sha256.clone(),
            // Reading from memory cannot fail.
            Self::Text(text) => {
                digest(&mut text.as_bytes()).map(|(hex, _)| hex).unwrap_or_default()
            }
        }
    }
}
