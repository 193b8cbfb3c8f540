//! A directory with the reports of the last runs.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use super::{ReportSink, ShutdownReport};
use crate::RunRecord;
use crate::json_file::{FileError, JsonFile, is_full};
use names::{ReportName, RunKind, outdated};
use winddown_host::{Durability, if_exists, remove_drafts, replace_private};
use winddown_shared::error_chain;

mod names;

/// The default number of boots whose reports are kept.
const DEFAULT_KEEP: usize = 20;

const FILE: JsonFile = JsonFile { what: "a shutdown report", largest: 64 << 20, is_public: false };

/// The size of the file that takes room for the report of a shutdown while the disk still has some: more than the report of a
/// node with several hundred pods.
const RESERVE_BYTES: usize = 512 << 10;

/// A store for the reports of the last runs: one JSON file each, in a directory.
///
/// It keeps the shutdowns of the last boots that had one (at most ten of each boot), and separately the
/// same number of drains and of drills, so that these do not displace shutdowns. On a full disk, what
/// [`reserve_room`](Self::reserve_room) has reserved, and then old reports, make room for that of a shutdown.
///
/// A file is always complete or absent: it is written to a temporary file, synced and renamed, and the
/// directory is synced.
///
/// ```
/// use winddown_shutdown::ReportStore;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let reports = ReportStore::new(directory.path()).keeping(20);
/// match reports.latest()? {
///     Some(report) => println!("{:?}", report.outcome),
///     None => println!("no shutdown yet"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReportStore {
    directory: PathBuf,
    keep: usize,
    node: Option<String>,
}

/// The content of a [`ReportStore`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The readable reports, newest first.
    pub reports: Vec<ShutdownReport>,
    /// The errors of the unreadable reports. Each names its file.
    pub broken: Vec<FileError>,
}

// === impl ReportStore ===

impl ReportStore {
    /// Creates a store in `directory`, which is created when the first report is written. Keeps the last 20.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), keep: DEFAULT_KEEP, node: None }
    }

    /// Keeps the shutdowns of the last `count` boots (at least one), and that many drains and drills.
    pub fn keeping(self, count: usize) -> Self {
        Self { keep: count.max(1), ..self }
    }

    /// Writes the node's name into reports that have none: a report may be read on another machine.
    pub fn of_node(self, name: impl Into<String>) -> Self {
        Self { node: Some(name.into()), ..self }
    }

    /// Writes `report`, which only its owner may read, and removes the oldest ones beyond the limit. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the report could not be written. Failing to remove old ones is not an error.
    pub fn write(&self, report: &ShutdownReport) -> Result<PathBuf, FileError> {
        let made = || fs::create_dir_all(&self.directory);
        self.with_room(report, &self.directory, made)
            .map_err(FileError::io("create", &self.directory))?;
        let path = self.path_for(report)?;
        let named = self
            .node
            .as_ref()
            .filter(|_| report.node.is_none())
            .map(|node| ShutdownReport { node: Some(node.clone()), ..report.clone() });
        let mut text = serde_json::to_vec_pretty(named.as_ref().unwrap_or(report))
            .map_err(|source| FILE.syntax(&path, source))?;
        text.push(b'\n');
        self.with_room(report, &path, || replace_private(&path, Durability::PowerCut, &text))
            .map_err(FileError::io("write", &path))?;
        self.prune();
        Ok(path)
    }

    /// Reserves room for the report of a shutdown, so that a disk that is full by then does not keep it out, unless it is
    /// reserved: in a file beside the directory, with `.reserve` after its name. Call this at the agent's start, and not
    /// during a shutdown. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the disk has no room left.
    pub fn reserve_room(&self) -> Result<(), FileError> {
        let path = self.reserve();
        if fs::metadata(&path).is_ok_and(|meta| meta.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        // A file system that compresses takes room only for what it cannot compress.
        let (random, words) = (RandomState::new(), 0..RESERVE_BYTES / size_of::<u64>());
        let bytes: Vec<u8> = words.flat_map(|word| random.hash_one(word).to_le_bytes()).collect();
        replace_private(&path, Durability::PowerCut, &bytes).map_err(FileError::io("write", &path))
    }

    /// The file beside the reports that takes their room.
    fn reserve(&self) -> PathBuf {
        self.directory.with_extension("reserve")
    }

    /// Calls `write`, which writes `report` to `path`. If the disk is full and this is the report of a shutdown, the reserve
    /// and then old reports make room for it, and `write` is called again.
    pub(super) fn with_room(
        &self,
        report: &ShutdownReport,
        path: &Path,
        write: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        match write() {
            Err(error) if is_full(&error) && RunKind::of(report.trigger) == RunKind::Shutdown => {
                if fs::remove_file(self.reserve()).is_ok() {
                    match write() {
                        Err(error) if is_full(&error) => {}
                        written => return written,
                    }
                }
                self.make_room(report, path);
                write()
            }
            written => written,
        }
    }

    /// Removes old reports, but those of the last boot only if no others can go. If the node stays up, those of the
    /// last two boots stay in any case.
    fn make_room(&self, report: &ShutdownReport, path: &Path) {
        let mut others = self.files().unwrap_or_default();
        others.retain(|file| file.path != path);
        let is_final = is_final_shutdown(report);
        // Agents of this boot ask how the node went down before it, and this boot may have reports, too.
        let mut going = outdated(others.clone(), if is_final { 1 } else { 2 });
        if going.is_empty() && is_final {
            going = others;
        }
        for ReportName { path, .. } in going {
            tracing::warn!(path = %path.display(), "the disk is full: removing an old report");
            remove(&path);
        }
    }

    /// Removes files that a power cut or a killed agent left half-written. Only call this at the agent's
    /// start: later, such a file may be one that a drain or a shutdown is writing. Blocks on the disk.
    pub fn remove_drafts(&self) {
        remove_drafts(&self.directory);
    }

    /// Reads all reports. If the directory does not exist, there are none.
    ///
    /// # Errors
    /// Fails if the directory cannot be read. A broken file is part of the listing, not an error.
    pub fn list(&self) -> Result<Listing, FileError> {
        let mut listing = Listing::default();
        for file in self.files()?.into_iter().rev() {
            match read(&file.path) {
                Ok(report) => listing.reports.push(report),
                Err(error) => listing.broken.push(error),
            }
        }
        Ok(listing)
    }

    /// Reads the newest readable report, if there is any.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn latest(&self) -> Result<Option<ShutdownReport>, FileError> {
        Ok(self.files()?.iter().rev().find_map(|file| read(&file.path).ok()))
    }

    /// Reads the newest shutdown of the boot `boot_id` that was not called off. Drains and drills do not
    /// count.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn shutdown_of_boot(&self, boot_id: &str) -> Result<Option<ShutdownReport>, FileError> {
        self.newest(|file| file.may_be_of(boot_id), |report| report.boot_id == boot_id)
    }

    /// Like [`shutdown_of_boot`](Self::shutdown_of_boot), for any boot except `boot_id`.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn shutdown_before(&self, boot_id: &str) -> Result<Option<ShutdownReport>, FileError> {
        self.newest(|_| true, |report| report.boot_id != boot_id)
    }

    /// Reads the report of the run that `record` is of, whatever became of the run.
    ///
    /// # Errors
    /// Fails if the directory or the report cannot be read.
    pub fn of_run(&self, record: &RunRecord) -> Result<Option<ShutdownReport>, FileError> {
        let files = self.files()?;
        self.file_of(&files, &record.report).map(|file| read(&file.path)).transpose()
    }

    /// Reads the newest wanted shutdown. Broken files are skipped; the listing names them.
    fn newest(
        &self,
        name: impl Fn(&ReportName) -> bool,
        wanted: impl Fn(&ShutdownReport) -> bool,
    ) -> Result<Option<ShutdownReport>, FileError> {
        let files = self.files()?.into_iter().rev();
        let files = files.filter(|file| file.kind == RunKind::Shutdown && name(file));
        // Older versions gave drains the same name.
        let wanted = |report: &ShutdownReport| is_final_shutdown(report) && wanted(report);
        Ok(files.filter_map(|file| read(&file.path).ok()).find(wanted))
    }

    /// Returns the path for `report`: a new one, unless the run has been reported before.
    fn path_for(&self, report: &ShutdownReport) -> Result<PathBuf, FileError> {
        let files = self.files()?;
        let Some(last) = files.last() else {
            return Ok(self.directory.join(ReportName::of(1, report)));
        };
        // A run is reported again if the agent is killed between its report and the final record, so that
        // the next agent finishes the run; and if it is called off after its end.
        if let Some(again) = self.file_of(&files, report) {
            return Ok(again.path.clone());
        }
        // Numbered, so that the order survives a clock that was set back between two boots.
        Ok(self.directory.join(ReportName::of(last.number.saturating_add(1), report)))
    }

    /// Finds the file of the run that `report` is of. The name identifies the run: no boot has two runs of a kind that
    /// began in the same millisecond.
    fn file_of<'a>(
        &self,
        files: &'a [ReportName],
        report: &ShutdownReport,
    ) -> Option<&'a ReportName> {
        files
            .iter()
            .rev()
            .find(|file| self.directory.join(ReportName::of(file.number, report)) == file.path)
    }

    /// The report files, oldest first.
    fn files(&self) -> Result<Vec<ReportName>, FileError> {
        let mut files: Vec<ReportName> =
            self.entries()?.filter_map(|path| ReportName::read(&path)).collect();
        files.sort_unstable_by(|a, b| (a.number, &a.path).cmp(&(b.number, &b.path)));
        Ok(files)
    }

    fn entries(&self) -> Result<impl Iterator<Item = PathBuf>, FileError> {
        let entries = if_exists(fs::read_dir(&self.directory));
        let entries = entries.map_err(FileError::io("read", &self.directory))?;
        Ok(entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())))
    }

    /// Removes the oldest reports beyond the limit.
    fn prune(&self) {
        let files = self.files().unwrap_or_default();
        outdated(files, self.keep).into_iter().for_each(|file| remove(&file.path));
    }
}

impl ReportSink for ReportStore {
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError> {
        self.write(report).map(drop)
    }
}

/// Whether the report is of a shutdown that was not called off.
fn is_final_shutdown(report: &ShutdownReport) -> bool {
    let is_shutdown = RunKind::of(report.trigger) == RunKind::Shutdown;
    is_shutdown && !report.left_the_node_up()
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), error = error_chain(&error), "cannot remove an old report");
    }
}

fn read(path: &Path) -> Result<ShutdownReport, FileError> {
    let gone = || FileError::io("read", path)(io::ErrorKind::NotFound.into());
    FILE.read(path)?.ok_or_else(gone)
}
