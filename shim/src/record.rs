//! What the process runtime keeps on disk, and where.
//!
//! ```text
//! STATE/lock                                       held by the one agent that uses STATE
//! STATE/pods/UID/pod.json                          the pod as it was first started, without its values
//! VOLATILE/UID.json                                the same, whole
//! STATE/pods/UID/NAME/ATTEMPT/supervisor           held by the supervisor while it lives; its stderr
//! STATE/pods/UID/NAME/ATTEMPT/attempt.json         written by the agent before anything is started
//! STATE/pods/UID/NAME/ATTEMPT/started.json         written by the supervisor before the command runs
//! STATE/pods/UID/NAME/ATTEMPT/exit.json            written by the supervisor when the command ended
//! STATE/pods/UID/NAME/ATTEMPT/asked                there if the agent has asked the command to end
//! STATE/pods/UID/NAME/ATTEMPT/termination-log      for the container to write
//! ```
//!
//! A record is complete or absent: it is written beside its place and renamed. One that does not
//! parse (a crash of the machine can leave zeros) counts as absent.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use winddown_shared::{WallTime, error_chain};

/// See the [module](self), as for the others.
pub const POD: &str = "pod.json";
/// An [`AttemptRecord`].
pub const ATTEMPT: &str = "attempt.json";
/// A [`StartedRecord`].
pub const STARTED: &str = "started.json";
/// An [`ExitRecord`].
pub const EXIT: &str = "exit.json";
/// Room for the exit record, taken before the command runs so that a full disk cannot refuse it.
pub const EXIT_RESERVE: &str = "exit.reserve";
/// Locked by the supervisor for as long as it lives.
pub const SUPERVISOR: &str = "supervisor";
/// What the supervisor writes into its own file once nothing of the container is left.
pub const ENDED: &str = "ended";
/// Why the program could not be started.
pub const START_ERROR: &str = "start-error";
/// Where a container may say why it ended.
pub const TERMINATION_LOG: &str = "termination-log";

/// Others pass through and see nothing.
const PASSAGE: u32 = 0o711;

/// Numbers the files that records are written into before they have their names.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// What the agent decided before it started an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRecord {
    /// Wall time at which the agent began to start it.
    pub created_at: WallTime,
    /// The back-off that was waited before this attempt; zero before the first.
    #[serde(default)]
    pub backoff_ms: u64,
    /// The log file of this attempt.
    pub log: PathBuf,
    /// Boot in which it was written. It is on disk before anything runs, which `started.json` is not.
    #[serde(default)]
    pub boot_id: String,
    /// The attempt's own cgroups, one in each hierarchy.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
}

/// Who runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRecord {
    /// The kernel's boot id: pids of another boot mean nothing.
    pub boot_id: String,
    /// The supervisor.
    pub supervisor: Identity,
    /// The container's main process.
    pub main: Identity,
    /// Wall time of the start.
    pub started_at: WallTime,
}

/// A process of one boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// As in the host's process namespace.
    pub pid: i32,
    /// In clock ticks since boot.
    pub start_time: u64,
}

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitRecord {
    /// 128 + signal for a signal's victim.
    pub exit_code: i32,
    /// What killed it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// What it said of its end.
    #[serde(default)]
    pub message: String,
    /// Wall time of the start.
    pub started_at: WallTime,
    /// Wall time of the end.
    pub finished_at: WallTime,
    /// How long it ran, by a clock that does not jump.
    pub ran_ms: u64,
    /// Boot in which it ended.
    #[serde(default)]
    pub boot_id: String,
}

/// A file of the state directory that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", .path.display())]
pub struct RecordError {
    /// What was tried: `cannot read`.
    pub action: &'static str,
    /// With what.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: io::Error,
}

impl RecordError {
    /// What makes an error of the reason.
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

/// Reads a record; none if it is absent, not a record, or cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    look(path).ok().flatten()
}

/// Reads a record; none if it is absent or not a record.
///
/// # Errors
/// It cannot be read: what it says is not known.
pub fn look<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match serde_json::from_slice(&bytes) {
        Ok(record) => Ok(Some(record)),
        Err(error) => {
            tracing::warn!(path = %path.display(), error = error_chain(&error), "ignoring a record that does not parse");
            Ok(None)
        }
    }
}

/// Writes a record in one step: after a crash of this process it is there whole or not at all.
/// `durable` makes that true of a crash of the machine too.
///
/// # Errors
/// No room, or the directory is gone or read-only.
pub fn write<T: Serialize>(path: &Path, record: &T, durable: bool) -> Result<(), RecordError> {
    // Of its own: two containers of a pod may write the pod's record at once.
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

/// Whether the supervisor of this attempt ended everything before it ended itself. If not, it was
/// killed, and processes may be left although the exit is recorded.
pub fn is_cleaned_up(dir: &Path) -> bool {
    std::fs::read_to_string(dir.join(SUPERVISOR))
        .is_ok_and(|said| said.ends_with(&format!("{ENDED}\n")))
}

/// Makes a directory, and those above it.
///
/// # Errors
/// The disk refused, or something else is there.
pub fn make_dirs(path: &Path) -> Result<(), RecordError> {
    let made = DirBuilder::new().recursive(true).mode(PASSAGE).create(path);
    made.map_err(RecordError::new("create", path))
}

/// Makes a directory that containers of other users pass through, to their termination log, and cannot
/// list. Whatever the umask of the agent is.
///
/// # Errors
/// As [`make_dirs`].
pub fn make_passage(path: &Path) -> Result<(), RecordError> {
    make_dirs(path)?;
    let made = std::fs::set_permissions(path, Permissions::from_mode(PASSAGE));
    made.map_err(RecordError::new("open the way through", path))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The directory is gone or its disk fails.
pub fn sync_dir(path: &Path) -> Result<(), RecordError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(RecordError::new("sync", path))
}

/// Creates (or empties) a file that only its owner reads.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Milliseconds, saturating.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
