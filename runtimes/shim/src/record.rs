//! The files that the process runtime keeps on disk.
//!
//! ```text
//! STATE/lock                                       locked by the one agent that uses STATE
//! STATE/pods/UID/pod.json                          the pod as it was first started, without its values
//! VOLATILE/UID.json                                the same, complete
//! STATE/pods/UID/NAME/ATTEMPT/supervisor           locked by the supervisor while it runs; its stderr
//! STATE/pods/UID/NAME/ATTEMPT/attempt.json         written by the agent before anything is started
//! STATE/pods/UID/NAME/ATTEMPT/started.json         written by the supervisor before the command runs
//! STATE/pods/UID/NAME/ATTEMPT/exit.json            written by the supervisor when the command exited
//! STATE/pods/UID/NAME/ATTEMPT/asked                exists if the agent has sent the stop signal
//! STATE/pods/UID/NAME/ATTEMPT/termination-log      for the container to write
//! ```
//!
//! A record is complete or absent: it is written to a temporary file, which is renamed. A record that does not parse (a
//! crash of the machine can leave zeros) counts as absent.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use winddown_host::regular;
use winddown_shared::{WallTime, error_chain};

/// The pod's record. For this and the following names see the [module](self).
pub const POD: &str = "pod.json";
/// An [`AttemptRecord`].
pub const ATTEMPT: &str = "attempt.json";
/// A [`StartedRecord`].
pub const STARTED: &str = "started.json";
/// An [`ExitRecord`].
pub const EXIT: &str = "exit.json";
/// Space for the exit record, reserved before the command runs so that a full disk cannot prevent it.
pub const EXIT_RESERVE: &str = "exit.reserve";
/// Locked by the supervisor for as long as it runs.
pub const SUPERVISOR: &str = "supervisor";
/// The text that the supervisor writes to its own file once nothing of the container is left.
pub const ENDED: &str = "ended";
/// More than any record has: a pod's with all its variables is below half of it.
const MAX_RECORD_BYTES: u64 = 256 * 1024 * 1024;
/// Why the program could not be started.
pub const START_ERROR: &str = "start-error";
/// Where a container may write why it terminated.
pub const TERMINATION_LOG: &str = "termination-log";

/// Mode of directories that other users can pass through but not list.
pub const PASSAGE: u32 = 0o711;

/// Numbers the temporary files of records.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// The agent's decisions before it starts an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRecord {
    /// Wall time at which the agent began to start the attempt.
    pub created_at: WallTime,
    /// The backoff that was waited before this attempt; zero before the first.
    #[serde(default)]
    pub backoff_ms: u64,
    /// The log file of this attempt.
    pub log: PathBuf,
    /// The boot in which it was written. Unlike `started.json`, this record is on disk before anything runs.
    #[serde(default)]
    pub boot_id: String,
    /// The attempt's own cgroups, one in each hierarchy.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
}

/// The processes of a started attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRecord {
    /// The kernel's boot id: pids of another boot mean nothing.
    pub boot_id: String,
    /// The supervisor.
    pub supervisor: ProcessIdentity,
    /// The container's main process.
    pub main: ProcessIdentity,
    /// Wall time of the start.
    pub started_at: WallTime,
}

/// Identifies a process within one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The pid in the host's process namespace.
    pub pid: i32,
    /// The start time in clock ticks since boot.
    pub start_time: u64,
}

/// How the command exited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitRecord {
    /// The exit code; 128 + signal if killed by a signal.
    pub exit_code: i32,
    /// The signal that killed it, if any.
    #[serde(default)]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// The termination message.
    #[serde(default)]
    pub message: String,
    /// Wall time of the start.
    pub started_at: WallTime,
    /// Wall time of the end.
    pub finished_at: WallTime,
    /// How long it ran, by a clock that does not jump.
    pub ran_ms: u64,
    /// The boot in which it exited.
    #[serde(default)]
    pub boot_id: String,
}

/// A file of the state directory that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", .path.display())]
pub struct RecordError {
    /// The action that failed, e.g. `cannot read`.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

impl RecordError {
    /// Returns a function that converts an [`io::Error`].
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

/// Reads a record; none if it is absent, invalid, or cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    try_read(path).ok().flatten()
}

/// Reads a record; none if it is absent or invalid.
///
/// # Errors
/// The record cannot be read, so its content is unknown.
pub fn try_read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match regular::read(path, MAX_RECORD_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    match serde_json::from_slice(&bytes) {
        Ok(record) => Ok(Some(record)),
        Err(error) => {
            tracing::warn!(
                path = %path.display(), error = error_chain(&error),
                "ignoring a record that cannot be parsed"
            );
            Ok(None)
        }
    }
}

/// Writes a record atomically: after a crash of this process it exists completely or not at all. With `durable` that
/// also holds after a crash of the machine.
///
/// # Errors
/// The disk is full, or the directory is gone or read-only.
pub fn write<T: Serialize>(path: &Path, record: &T, durable: bool) -> Result<(), RecordError> {
    // A temporary file of its own: two containers of a pod may write the pod's record at the same time.
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{number}.tmp"));
    let written = (|| {
        let bytes = serde_json::to_vec(record)?;
        let mut file = create(&beside)?;
        file.write_all(&bytes)?;
        if durable {
            file.sync_data()?;
        }
        std::fs::rename(&beside, path)
    })();
    written.map_err(|source| {
        let _ = std::fs::remove_file(&beside);
        RecordError { action: "write", path: path.to_owned(), source }
    })
}

/// Whether the supervisor of this attempt killed all other processes before it exited. If not, it was killed itself,
/// and processes may be left even though the exit is recorded.
///
/// # Errors
/// The supervisor's file cannot be read, so this is unknown.
pub fn is_cleaned_up(dir: &Path) -> io::Result<bool> {
    match regular::read(&dir.join(SUPERVISOR), MAX_RECORD_BYTES) {
        Ok(said) => Ok(said.ends_with(format!("{ENDED}\n").as_bytes())),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Creates a directory and its parents. Of one that exists nothing is written: its disk may be read-only, or hang.
///
/// # Errors
/// The directory cannot be created, or something else has its path.
pub fn make_dirs(path: &Path) -> Result<(), RecordError> {
    if path.is_dir() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(PASSAGE).create(path);
    made.map_err(RecordError::new("create", path))
}

/// Creates a directory that containers of other users can pass through, to their termination log, but not list,
/// regardless of the agent's umask.
///
/// # Errors
/// See [`make_dirs`].
pub fn make_passage(path: &Path) -> Result<(), RecordError> {
    make_dirs(path)?;
    let is_open = |made: Metadata| made.permissions().mode() & 0o7777 == PASSAGE;
    if path.metadata().is_ok_and(is_open) {
        return Ok(());
    }
    let made = std::fs::set_permissions(path, Permissions::from_mode(PASSAGE));
    made.map_err(RecordError::new("open the way through", path))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The directory is gone or its disk fails.
pub fn sync_dir(path: &Path) -> Result<(), RecordError> {
    winddown_host::sync_directory(path).map_err(RecordError::new("sync", path))
}

/// Creates (or truncates) a file that only its owner can read.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_anything_is_left_is_unknown_while_the_supervisors_file_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(SUPERVISOR);
        assert!(!is_cleaned_up(dir.path()).unwrap(), "there is none");
        // A directory cannot be read like a file.
        std::fs::create_dir(&file).unwrap();
        assert!(is_cleaned_up(dir.path()).is_err());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, b"\xff\nended\n").unwrap();
        assert!(is_cleaned_up(dir.path()).unwrap());
    }
}
