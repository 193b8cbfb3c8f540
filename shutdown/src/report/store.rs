//! The reports of the last runs, in a directory.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{ReportSink, ShutdownReport};

/// How many reports are kept unless said otherwise.
const DEFAULT_KEEP: usize = 20;

/// A report larger than this is not one of ours.
const LARGEST: u64 = 64 << 20;

const PREFIX: &str = "shutdown-";
const SUFFIX: &str = ".json";
const TEMPORARY: &str = ".tmp-shutdown-";

/// Keeps the reports of the last runs, one JSON file each, in a directory.
///
/// A file is complete or absent: it is written beside its place, synced, renamed, and the
/// directory synced.
#[derive(Clone, Debug)]
pub struct ReportStore {
    directory: PathBuf,
    keep: usize,
}

/// What is in a [`ReportStore`].
#[derive(Debug, Default)]
pub struct Listing {
    /// The readable ones, newest first.
    pub reports: Vec<ShutdownReport>,
    /// The others: each names its file.
    pub broken: Vec<StoreError>,
}

/// Why a report could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system refused.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// The file is not a report.
    #[error("{} is not a shutdown report; remove it", .path.display())]
    NotAReport {
        /// The file.
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The file is far too large for a report.
    #[error("{} is too large for a shutdown report ({size} bytes); remove it", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
}

// === impl ReportStore ===

impl ReportStore {
    /// A store in `directory`, which is made when the first report is written. Keeps the last 20.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), keep: DEFAULT_KEEP }
    }

    /// Keeps the last `count` reports, at least one.
    pub fn keeping(self, count: usize) -> Self {
        Self { keep: count.max(1), ..self }
    }

    /// Writes `report` and drops the oldest ones beyond the limit. Blocks on the disk.
    ///
    /// # Errors
    /// The report is not on disk. Failing to drop old ones is not an error.
    pub fn write(&self, report: &ShutdownReport) -> Result<PathBuf, StoreError> {
        fs::create_dir_all(&self.directory)
            .map_err(|source| io_error("create", &self.directory, source))?;
        // Numbered, so that the order survives a clock that was set back between two boots.
        let number = self.files()?.last().map_or(1, |(number, _)| number.saturating_add(1));
        let path = self.directory.join(format!("{PREFIX}{number:06}-{}{SUFFIX}", report.id()));
        let mut text = serde_json::to_vec_pretty(report)
            .map_err(|source| StoreError::NotAReport { path: path.clone(), source })?;
        text.push(b'\n');
        write_atomically(&path, TEMPORARY, &text)
            .map_err(|source| io_error("write", &path, source))?;
        self.prune();
        Ok(path)
    }

    /// Reads all reports. A directory that does not exist holds none.
    ///
    /// # Errors
    /// The directory cannot be read. A broken file is not an error but part of the listing.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        for (_, path) in self.files()?.into_iter().rev() {
            match read(&path) {
                Ok(report) => listing.reports.push(report),
                Err(error) => listing.broken.push(error),
            }
        }
        Ok(listing)
    }

    /// Reads the newest readable report, if there is any.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn latest(&self) -> Result<Option<ShutdownReport>, StoreError> {
        Ok(self.files()?.iter().rev().find_map(|(_, path)| read(path).ok()))
    }

    /// The report files with their numbers, oldest first.
    fn files(&self) -> Result<Vec<(u64, PathBuf)>, StoreError> {
        let mut files: Vec<(u64, PathBuf)> = self
            .entries()?
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                let rest = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
                let number = rest.split_once('-').and_then(|(number, _)| number.parse().ok());
                Some((number.unwrap_or(0), path))
            })
            .collect();
        files.sort_unstable();
        Ok(files)
    }

    fn entries(&self) -> Result<impl Iterator<Item = PathBuf>, StoreError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => Some(entries),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(io_error("read", &self.directory, source)),
        };
        Ok(entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())))
    }

    /// Drops the oldest reports beyond the limit, and what a power cut left half-written.
    fn prune(&self) {
        let files = self.files().unwrap_or_default();
        let old = files.into_iter().rev().skip(self.keep).map(|(_, path)| path);
        let half_written = self.entries().into_iter().flatten().filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(TEMPORARY))
        });
        for path in old.chain(half_written) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove an old report");
            }
        }
    }
}

impl ReportSink for ReportStore {
    fn keep(&self, report: &ShutdownReport) -> Result<(), StoreError> {
        self.write(report).map(drop)
    }
}

/// Writes `bytes` to `path` so that a reader and a power cut see all or nothing. Mode 0644.
pub(crate) fn write_atomically(path: &Path, prefix: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(prefix).tempfile_in(directory)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}

fn read(path: &Path) -> Result<ShutdownReport, StoreError> {
    let meta = fs::metadata(path).map_err(|source| io_error("read", path, source))?;
    if !meta.is_file() {
        let source = io::Error::other("not a regular file");
        return Err(io_error("read", path, source));
    }
    if meta.len() > LARGEST {
        return Err(StoreError::TooLarge { path: path.into(), size: meta.len() });
    }
    let bytes = fs::read(path).map_err(|source| io_error("read", path, source))?;
    serde_json::from_slice(&bytes)
        .map_err(|source| StoreError::NotAReport { path: path.into(), source })
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { what, path: path.into(), source }
}
