//! Decides what to do from the desired and the current state. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use super::assets::{Body, Item, Kind, LOGIND_DROP_IN, MASK, Owner};
use super::error::Conflict;
use super::record::{Entry, Record};
use super::report::{Action, Change};
use super::tree::{Found, digest};

/// The plan of an installation.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The record of our files once all steps are done.
    pub(super) record: Record,
    /// The conflicts; if there are any, nothing may be done.
    pub(super) conflicts: Vec<Conflict>,
}

/// One step, and how it is reported.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) change: Change,
    pub(super) work: Work,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
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
pub(super) fn with_parents(items: Vec<Item>) -> Vec<Item> {
    let mut whole: Vec<Item> = Vec::with_capacity(items.len() * 2);
    for item in items {
        for (at, _) in item.path.match_indices('/').skip(1) {
            let parent = &item.path[..at];
            if !whole.iter().any(|known| known.path == parent) {
                let kind = Kind::Directory { mode: 0o755 };
                whole.push(Item { path: parent.to_owned(), kind });
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
    items: Vec<Item>,
    found: &BTreeMap<String, Found>,
    record: &Record,
    force: bool,
) -> Plan {
    let mut plan = Plan::default();
    for item in items {
        let there = found.get(&item.path).unwrap_or(&Found::Nothing);
        let Item { path, kind } = item;
        let outcome = match kind {
            Kind::Directory { mode } => directory(mode, there, record.entries.get(&path)),
            Kind::Link { target } => link(target, there, record.entries.get(&path), force),
            Kind::File { mode, body, owner } => {
                file(&path, mode, body, &owner, there, record, force)
            }
        };
        match outcome {
            Ok((action, work, entry)) => {
                if let Some(entry) = entry {
                    plan.record.entries.insert(path.clone(), entry);
                }
                let is_operators = plan.record.entries.get(&path) == Some(&Entry::Configuration);
                let why = (is_operators && action == Action::Kept).then_some("yours");
                plan.steps.push(Step { change: Change { action, path, why }, work });
            }
            Err(why) => plan.conflicts.push(Conflict { path, why }),
        }
    }
    retire(&mut plan, found, record);
    plan
}

type Outcome = Result<(Action, Work, Option<Entry>), &'static str>;

fn directory(mode: u32, there: &Found, recorded: Option<&Entry>) -> Outcome {
    match there {
        Found::Nothing => {
            Ok((Action::Created, Work::MakeDirectory { mode }, Some(Entry::Directory)))
        }
        // A link to a directory is as good: only the last component of a path is not followed.
        Found::Directory | Found::Link(_) => Ok((Action::Kept, Work::Nothing, recorded.cloned())),
        Found::File { .. } | Found::Other => Err("it is not a directory; move it away"),
    }
}

fn link(target: &'static str, there: &Found, recorded: Option<&Entry>, force: bool) -> Outcome {
    let entry = Some(Entry::Link { target: target.to_owned() });
    match there {
        Found::Nothing => Ok((Action::Created, Work::Link { target }, entry)),
        Found::Link(to) if to.as_os_str() == target => Ok((Action::Kept, Work::Nothing, entry)),
        // Our own link, to the unit's earlier path.
        Found::Link(to) if leads_to(recorded, to) => {
            Ok((Action::Updated, Work::Link { target }, entry))
        }
        // For systemd only the name counts, and "systemctl enable" may write /lib or /usr/lib.
        Found::Link(to) if to.file_name() == Path::new(target).file_name() => {
            Ok((Action::Kept, Work::Nothing, None))
        }
        Found::Link(_) | Found::File { .. } if force => {
            Ok((Action::Replaced, Work::Link { target }, entry))
        }
        Found::Link(_) => Err("it leads elsewhere; --force replaces it"),
        Found::File { .. } => Err("it is not a link; --force replaces it"),
        Found::Directory | Found::Other => Err("it is not a link; move it away"),
    }
}

fn leads_to(recorded: Option<&Entry>, to: &Path) -> bool {
    matches!(recorded, Some(Entry::Link { target }) if to.as_os_str() == target.as_str())
}

fn file(
    path: &str,
    mode: u32,
    body: Body,
    owner: &Owner,
    there: &Found,
    record: &Record,
    force: bool,
) -> Outcome {
    let wanted = body.sha256();
    let is_text = matches!(body, Body::Text(_));
    let entry = match owner {
        Owner::Operator => Entry::Configuration,
        Owner::Install | Owner::Once { .. } => Entry::File { sha256: vec![wanted.clone()] },
    };
    let is_installs = *owner == Owner::Install;
    let write = |keep_old| Work::Write { mode, body, keep_old };
    match there {
        Found::Nothing => Ok((Action::Created, write(false), Some(entry))),
        Found::File { sha256, .. } if matches!(owner, Owner::Once { instead_of: Some(old) } if old == sha256) => {
            Ok((Action::Updated, write(false), Some(entry)))
        }
        Found::File { .. } if !is_installs => {
            Ok((Action::Kept, Work::Nothing, record.entries.get(path).cloned()))
        }
        Found::File { sha256, mode: old, .. } if *sha256 == wanted => {
            // A text file with our content is ours even if it is not recorded. A program may belong
            // to a package, and stays the package's.
            let ours = is_text || record.owns(path, sha256);
            let (action, work) = if *old == mode || !ours {
                (Action::Kept, Work::Nothing)
            } else {
                (Action::Updated, Work::SetMode { mode })
            };
            Ok((action, work, ours.then_some(entry)))
        }
        Found::File { sha256, .. } if record.owns(path, sha256) => {
            Ok((Action::Updated, write(false), Some(entry)))
        }
        Found::Link(to) if to.as_os_str() == MASK && is_installs => {
            Err("it is masked; take the mask away first (systemctl unmask, or remove the link)")
        }
        Found::Link(_) if !is_installs => Ok((Action::Kept, Work::Nothing, None)),
        Found::File { .. } | Found::Link(_) if force => {
            Ok((Action::Replaced, write(true), Some(entry)))
        }
        Found::File { signed, .. } if *signed || record.entries.contains_key(path) => {
            Err("it was edited; --force replaces it and keeps the old one beside it")
        }
        Found::File { .. } | Found::Link(_) => {
            Err("it is not winddown's; --force replaces it and keeps the old one beside it")
        }
        Found::Directory | Found::Other => Err("it is not a file; move it away"),
    }
}

/// Removes what an earlier installation created and this one does not need (because of another
/// runtime, or another directory for the programs).
fn retire(plan: &mut Plan, found: &BTreeMap<String, Found>, record: &Record) {
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
            Entry::File { .. } if path == LOGIND_DROP_IN => {}
            // Unmask it: the new runtime needs the masked file.
            Entry::Link { target } if target == MASK => {
                let there = found.get(path).unwrap_or(&Found::Nothing);
                steps.extend(removal(path, entry, there, record, false));
            }
            // The unit was enabled earlier; disabling it is left to "systemctl disable".
            Entry::Link { .. } | Entry::Configuration => {
                plan.record.entries.insert(path.clone(), entry.clone());
            }
            Entry::File { .. } | Entry::Directory => {
                let there = found.get(path).unwrap_or(&Found::Nothing);
                steps.extend(removal(path, entry, there, record, false));
            }
        }
    }
    plan.steps.extend(steps);
}

/// Returns the step that removes a recorded entry; `None` if it no longer exists.
pub(super) fn removal(
    path: &str,
    entry: &Entry,
    there: &Found,
    record: &Record,
    force: bool,
) -> Option<Step> {
    let (action, why, work) = match (entry, there) {
        (_, Found::Nothing) => return None,
        (Entry::Directory, Found::Directory) => (Action::Removed, None, Work::RemoveDirectory),
        (Entry::Link { target }, Found::Link(to)) if to.as_os_str() == target.as_str() => {
            (Action::Removed, None, Work::Remove)
        }
        (Entry::File { .. }, Found::File { sha256, .. }) if force || record.owns(path, sha256) => {
            (Action::Removed, None, Work::Remove)
        }
        (Entry::File { .. }, Found::File { .. }) => {
            (Action::Kept, Some("changed since it was installed"), Work::Nothing)
        }
        (Entry::Configuration, _) => {
            (Action::Kept, Some("yours; --purge removes it"), Work::Nothing)
        }
        _ => (Action::Kept, Some("not what was installed"), Work::Nothing),
    };
    Some(Step { change: Change { action, path: path.to_owned(), why }, work })
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
