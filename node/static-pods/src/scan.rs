//! Scans the directory, and keeps what earlier scans found.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_host::{Durability, regular, replace_private};
use winddown_shared::{Pod, WallTime, error_chain};

use super::file::{self, EntryRole, FileState};
use super::{DesiredManifests, ManifestError, ManifestProblem, read_manifest};

/// How long a file has to stay unchanged before it is read, or counts as removed, unless its writer is known to have
/// closed it. Editors remove a file and write it again.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(500);

/// How long a file has to be empty, in seconds, before it counts as the manifest of no pod: nobody is writing it.
const EMPTY_SECONDS: i64 = 5;

/// The most bytes of the record for the next agent.
const MOST_KEPT: u64 = 1024 * 1024;

/// The last known state of the directory.
pub(super) struct Scanner {
    directory: PathBuf,
    node_name: String,
    files: BTreeMap<OsString, ScannedFile>,
    /// Why the directory could not be listed, and since when.
    failure: Option<(String, WallTime)>,
    /// Files whose pod is already defined by another file, and since when.
    doubles: BTreeMap<OsString, WallTime>,
    /// Files whose pods were desired at the last scan, and the full names of these pods.
    wanted: BTreeMap<OsString, Arc<str>>,
    /// Where `doubles` are kept for the next agent, which would not know which of two pods runs.
    kept: Option<PathBuf>,
}

/// The known state of one file.
#[derive(Default)]
struct ScannedFile {
    /// The version that `pod` or `error` comes from; none if it has to be read again.
    taken: Option<FileState>,
    /// A version that may still be being written, and since when it exists.
    pending: Option<(FileState, Instant)>,
    /// The pod of the last valid version.
    pod: Option<Pod>,
    /// The error of the version in `taken`, and since when.
    error: Option<(ManifestError, WallTime)>,
}

impl Scanner {
    pub(super) fn new(directory: PathBuf, node_name: String) -> Self {
        Self {
            directory,
            node_name,
            files: BTreeMap::new(),
            failure: None,
            doubles: BTreeMap::new(),
            wanted: BTreeMap::new(),
            kept: None,
        }
    }

    /// Continues from what an earlier agent of this boot has kept in `file`, and keeps it there. Blocking.
    pub(super) fn keep_in(&mut self, file: PathBuf) {
        let found = regular::read(&file, MOST_KEPT).ok();
        let found = found.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let found: BTreeMap<String, WallTime> = found;
        self.doubles = found.into_iter().map(|(name, since)| (name.into(), since)).collect();
        self.kept = Some(file);
    }

    /// Scans once, for a directory that is not watched.
    pub(super) fn once(mut self, wall: WallTime) -> io::Result<DesiredManifests> {
        let closed = self.list()?.into_iter().collect();
        let now = Instant::now();
        self.scan(&closed, now, wall);
        // Nobody waits here for what has yet to settle.
        self.scan(&closed, now + SETTLE_TIME, wall);
        Ok(self.desired(wall))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Scans the directory. `closed` are files that a writer has just closed or moved here.
    ///
    /// Returns whether a file has yet to settle, so that another scan is due after [`SETTLE_TIME`]. Reads only files
    /// that have changed.
    pub(super) fn scan(
        &mut self,
        closed: &HashSet<OsString>,
        now: Instant,
        wall: WallTime,
    ) -> bool {
        let names = match self.list() {
            Ok(names) => {
                self.failure = None;
                names
            }
            Err(error) => {
                let what = reason(&error);
                let since = match &self.failure {
                    Some((same, since)) if *same == what => *since,
                    _ => wall,
                };
                self.failure = Some((what, since));
                return false;
            }
        };
        for name in names {
            self.files.entry(name).or_default();
        }
        let mut unsettled = false;
        let (directory, node_name) = (&self.directory, &self.node_name);
        self.files.retain(|name, entry| {
            let path = directory.join(name);
            let (role, closed) = (EntryRole::of(name), closed.contains(name));
            let look = Look { path: &path, role, node_name, now, wall, closed };
            let kept = entry.look(&look);
            unsettled |= entry.pending.is_some();
            kept
        });
        unsettled
    }

    /// Returns the desired state, as far as it is known. The caller sets the generation.
    pub(super) fn desired(&mut self, wall: WallTime) -> DesiredManifests {
        let complete = self.failure.is_none();
        let awaited = !complete || self.files.values().any(|entry| entry.pending.is_some());
        let mut desired = DesiredManifests { complete, awaited, ..DesiredManifests::default() };
        if let Some((what, since)) = &self.failure {
            let directory = &self.directory;
            desired.errors.push(ManifestProblem::of_file(directory, what, false, *since));
        }
        let owners = owners(&self.files, &self.wanted, &self.doubles);
        let is_any_unread = self.files.values().any(ScannedFile::is_unread);
        let (mut doubles, mut wanted) = (BTreeMap::new(), BTreeMap::new());
        for (name, entry) in &self.files {
            let path = self.directory.join(name);
            let may_run = entry.pod.is_none() && entry.may_define_a_pod(EntryRole::of(name), wall);
            desired.complete &= !may_run;
            if let Some((error, since)) = &entry.error {
                let problems = error.problems(&path, entry.pod.is_some(), *since);
                let problems = problems.into_iter().map(|one| ManifestProblem { may_run, ..one });
                desired.errors.extend(problems);
            }
            let known = self.doubles.get(name).copied();
            let Some(pod) = &entry.pod else {
                doubles.extend(known.filter(|_| entry.is_unread()).map(|at| (name.clone(), at)));
                continue;
            };
            let other = identities(pod).into_iter().find_map(|(id, field)| {
                let owner = owners.get(id).copied()?;
                (owner != name).then_some((owner, field))
            });
            let Some((other, field)) = other else {
                if let Some(since) = known.filter(|_| is_any_unread) {
                    // That one may be what it is the second of.
                    doubles.insert(name.clone(), since);
                    continue;
                }
                desired.pods.push(pod.clone());
                wanted.insert(name.clone(), pod.full_name().clone());
                continue;
            };
            // The other file has moved, maybe here.
            if known.is_none() && self.files.get(other).is_some_and(ScannedFile::is_missing) {
                continue;
            }
            let since = known.unwrap_or(wall);
            doubles.insert(name.clone(), since);
            let what = format!(
                "the pod {} is in {} already: remove one of the two files, or rename its pod",
                pod.pod_ref(),
                self.directory.join(other).display()
            );
            let problem = ManifestProblem::of_file(path, &what, false, since);
            desired.errors.push(ManifestProblem { field: field.to_owned(), ..problem });
        }
        if doubles != self.doubles {
            self.keep(&doubles);
        }
        (self.doubles, self.wanted) = (doubles, wanted);
        desired
    }

    fn keep(&self, doubles: &BTreeMap<OsString, WallTime>) {
        let Some(file) = &self.kept else { return };
        let named = doubles.iter().filter_map(|(name, since)| Some((name.to_str()?, since)));
        let text = serde_json::to_vec(&named.collect::<BTreeMap<_, _>>()).unwrap_or_default();
        if let Err(error) = replace_private(file, Durability::Process, &text) {
            tracing::warn!(
                file = %file.display(), error = error_chain(&error),
                "cannot record which manifests have the name of another's pod: after a restart of \
                 the agent, another of them may run"
            );
        }
    }

    /// The time until a file that is empty counts as the manifest of no pod, if one has yet to.
    pub(super) fn until_empty(&self, wall: WallTime) -> Option<Duration> {
        let ages = self.files.values().filter(|entry| entry.pod.is_none());
        let ages = ages.filter_map(|entry| entry.empty_for(wall));
        let left = ages.filter_map(|age| u64::try_from(EMPTY_SECONDS.saturating_sub(age)).ok());
        left.filter(|left| *left > 0).min().map(Duration::from_secs)
    }

    /// Lists the names of all entries that are not hidden.
    fn list(&self) -> io::Result<Vec<OsString>> {
        let names = std::fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name()));
        names
            .filter(|name| !matches!(name, Ok(name) if EntryRole::of(name) == EntryRole::Hidden))
            .collect()
    }
}

/// The file that each pod's name and UID belong to: of two files, the one whose pod was wanted before, so that a copy
/// of a manifest ends no pod, or else one that was not found to be the second, or else the one with the shorter name,
/// which is what was copied, or else the first.
fn owners<'a>(
    files: &'a BTreeMap<OsString, ScannedFile>,
    wanted: &BTreeMap<OsString, Arc<str>>,
    doubles: &BTreeMap<OsString, WallTime>,
) -> HashMap<&'a str, &'a OsString> {
    let pods = files.iter().filter_map(|(name, entry)| Some((name, entry.pod.as_ref()?)));
    let (known, mut new): (Vec<_>, Vec<_>) =
        pods.partition(|(name, pod)| wanted.get(*name) == Some(pod.full_name()));
    new.sort_by_key(|(name, _)| (doubles.contains_key(*name), name.len()));
    let mut owners: HashMap<&str, &OsString> = HashMap::new();
    for (name, pod) in known.into_iter().chain(new) {
        let ids = identities(pod).map(|(id, _)| id);
        if !ids.iter().any(|id| owners.contains_key(id)) {
            owners.extend(ids.map(|id| (id, name)));
        }
    }
    owners
}

/// What no two pods may have in common, and the fields that it comes from.
fn identities(pod: &Pod) -> [(&str, &'static str); 2] {
    [(&**pod.full_name(), "metadata.name"), (pod.uid().as_str(), "metadata.uid")]
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "does not exist: create it; pods that came from it are kept until it is there"
                .to_owned()
        }
        io::ErrorKind::NotADirectory => {
            "is not a directory: pods that came from it are kept until it is one".to_owned()
        }
        _ => format!("cannot be read, pods that came from it are kept: {error}"),
    }
}

/// The context for checking one file.
struct Look<'a> {
    path: &'a Path,
    role: EntryRole,
    node_name: &'a str,
    now: Instant,
    wall: WallTime,
    /// Whether its writer has just closed it.
    closed: bool,
}

// === impl ScannedFile ===

impl ScannedFile {
    /// Checks the file, and reads it if it has settled. Returns whether the file still exists.
    fn look(&mut self, look: &Look<'_>) -> bool {
        let state = FileState::of(look.path);
        if self.taken == Some(state) && !look.closed {
            self.pending = None;
            return true;
        }
        if !self.has_settled(state, look) {
            return true;
        }
        self.pending = None;
        match state {
            FileState::Missing => return false,
            FileState::Regular(_) => match look.role {
                EntryRole::Copy(kind) => {
                    self.taken = Some(state);
                    self.fail(ManifestError::Copy { path: look.path.to_owned(), kind }, look);
                }
                EntryRole::Manifest | EntryRole::Hidden => self.read(state, look),
            },
            FileState::Dangling => self.refuse(state, "a link that leads nowhere", look),
            FileState::Special(kind) => self.refuse(state, kind, look),
            FileState::Unreadable(kind) => {
                // No event reports when the file becomes readable, so every scan tries again.
                self.taken = None;
                let source = Arc::new(io::Error::from(kind));
                self.fail(ManifestError::Read { path: look.path.to_owned(), source }, look);
            }
        }
        true
    }

    fn has_settled(&mut self, state: FileState, look: &Look<'_>) -> bool {
        let rests = match state {
            FileState::Regular(stamp) => {
                // Not changed for at least a second, unless the clock was set back.
                (look.closed && look.role == EntryRole::Manifest) || stamp.age(look.wall) >= 2
            }
            FileState::Missing => false,
            FileState::Special(_) | FileState::Dangling | FileState::Unreadable(_) => true,
        };
        if rests {
            return true;
        }
        match self.pending {
            Some((pending, since)) if pending == state => look.now - since >= SETTLE_TIME,
            _ => {
                self.pending = Some((state, look.now));
                false
            }
        }
    }

    fn read(&mut self, state: FileState, look: &Look<'_>) {
        let bytes = match file::read(look.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.taken = None;
                return self.fail(error, look);
            }
        };
        if FileState::of(look.path) != state {
            // It changed while it was read, so the content may be a mixture.
            self.pending = Some((state, look.now));
            return;
        }
        self.taken = Some(state);
        match read_manifest(look.path, &bytes, look.node_name) {
            Ok(pod) => {
                self.error = None;
                // An unchanged pod stays the same object, so that readers notice that nothing changed.
                if self.pod.as_ref().is_none_or(|old| old.object() != pod.object()) {
                    self.pod = Some(pod);
                }
            }
            Err(error) => self.fail(error, look),
        }
    }

    /// Whether the file has yet to be read for the first time.
    fn is_unread(&self) -> bool {
        self.pod.is_none() && self.pending.is_some()
    }

    /// Whether the file is gone, and may yet come back.
    fn is_missing(&self) -> bool {
        matches!(self.pending, Some((FileState::Missing, _)))
    }

    /// Whether a pod that runs may be defined here, as far as can be told: what cannot be read may define any.
    fn may_define_a_pod(&self, role: EntryRole, wall: WallTime) -> bool {
        let is_special =
            self.pending.is_none() && matches!(self.taken, Some(FileState::Special(_)));
        let is_empty = self.empty_for(wall).is_some_and(|age| age >= EMPTY_SECONDS);
        role == EntryRole::Manifest && !is_special && !is_empty
    }

    /// For how many seconds the file has been empty; none if it is not, or may be being written.
    fn empty_for(&self, wall: WallTime) -> Option<i64> {
        match (&self.pending, self.taken, &self.error) {
            (None, Some(FileState::Regular(stamp)), Some((ManifestError::Empty { .. }, _))) => {
                Some(stamp.age(wall))
            }
            _ => None,
        }
    }

    /// Records that this is not a regular file.
    fn refuse(&mut self, state: FileState, kind: &'static str, look: &Look<'_>) {
        self.taken = Some(state);
        self.fail(ManifestError::NotRegular { path: look.path.to_owned(), kind }, look);
    }

    /// Records the error; the last valid pod stays.
    fn fail(&mut self, error: ManifestError, look: &Look<'_>) {
        let since = match &self.error {
            Some((same, since)) if same.to_string() == error.to_string() => *since,
            _ => look.wall,
        };
        self.error = Some((error, since));
    }
}
