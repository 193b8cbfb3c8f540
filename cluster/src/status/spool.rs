//! Records of pods that must survive the machine: one file per pod.

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use winddown_shared::{Mutex, PodUid, PodUidMap, WallClock, WallTime, error_chain};

mod disk;
mod file;
mod read;
#[cfg(test)]
pub(crate) mod tests;

use disk::Disk;
use disk::RealDisk;
use file::{RecordEnvelope, file_name};

/// How long a caller waits for the disk. The write continues in the background.
const DISK_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of files that are written or removed at once: a file system commits concurrent writes together. It is half
/// of the agent's threads for disks, so that one that hangs leaves some to all others.
const MAX_CONCURRENT_WRITES: usize = 4;

/// A directory of records, one JSON file per pod UID. Cheap to clone; clones are the same spool.
///
/// A file is always complete or absent: it is written under another name, synced and renamed. All
/// I/O happens off the async threads, and no writer waits for the disk for more than a second. A
/// full or broken disk is counted, and logged once.
#[derive(Debug)]
pub struct Spool<R> {
    inner: Arc<SpoolShared>,
    records: PhantomData<fn() -> R>,
}

/// A record as it was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord<R> {
    /// The pod that it belongs to.
    pub uid: PodUid,
    /// When it was written.
    pub at: WallTime,
    /// The record.
    pub record: R,
}

/// The state of a spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolStats {
    /// Records on disk.
    pub files: usize,
    /// Writes that failed or took more than a second, since the start.
    pub errors: u64,
    /// Files that could not be read and were set aside since the start.
    pub set_aside: u64,
}

/// Why a record is not on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// A file system operation failed.
    #[error("cannot {what} {}", .path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The record cannot be serialized as JSON.
    #[error("a record for {} cannot be written as JSON", .path.display())]
    Json {
        /// The file that was to be written.
        path: PathBuf,
        /// The serialization error.
        source: serde_json::Error,
    },
    /// The disk took too long. The write continues.
    #[error("{} was not written within a second; the write goes on", .path.display())]
    Slow {
        /// The file.
        path: PathBuf,
    },
    /// A later record of the pod, or its removal, has taken its place.
    #[error("{} was superseded by a newer record", .path.display())]
    Outdated {
        /// The file.
        path: PathBuf,
    },
}

#[derive(Debug)]
struct SpoolShared {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    wall: WallClock,
    most: usize,
    state: Mutex<SpoolState>,
    /// Held while a file is renamed or removed, so that an older record never replaces a newer one.
    naming: Mutex<()>,
    writers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct SpoolState {
    turn: u64,
    /// The last turn of each pod that has a file, or will have one.
    turns: PodUidMap<u64>,
    /// The pods by turn, oldest first.
    by_turn: BTreeMap<u64, PodUid>,
    errors: u64,
    set_aside: u64,
    /// Whether the last write failed, which was logged.
    failing: bool,
}

// === impl Spool ===

impl<R> Clone for Spool<R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), records: PhantomData }
    }
}

impl<R: Serialize + DeserializeOwned + Send + 'static> Spool<R> {
    /// The spool in `directory`, which is created when it is needed, of at most so many files: beyond it the oldest is
    /// removed. None is removed for its age, which no clock tells over a boot. Reads nothing yet.
    pub fn new(directory: impl Into<PathBuf>, most: usize, wall: WallClock) -> Self {
        Self::on(Arc::new(RealDisk), directory, most, wall)
    }

    /// The same with another implementation of the disk.
    pub(crate) fn on(
        disk: Arc<dyn Disk>,
        directory: impl Into<PathBuf>,
        most: usize,
        wall: WallClock,
    ) -> Self {
        let inner = SpoolShared {
            directory: directory.into(),
            disk,
            wall,
            most,
            state: Mutex::default(),
            naming: Mutex::default(),
            writers: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
        };
        Self { inner: Arc::new(inner), records: PhantomData }
    }

    /// Writes `record` in place of an earlier one of the pod, and syncs it. Waits for at most a
    /// second; dropping the future abandons the wait, not the write.
    ///
    /// # Errors
    /// When it is not on disk, or not yet. This is counted and logged here, once for each outage.
    pub async fn keep(&self, uid: &PodUid, record: R) -> Result<(), SpoolError> {
        let path = self.inner.path(uid);
        let (turn, surplus) = self.inner.take_turn(uid);
        if let Some(oldest) = surplus {
            tracing::warn!(
                directory = %self.inner.directory.display(),
                pod = %oldest,
                "too many records; dropping the oldest"
            );
            self.remove(&oldest);
        }
        let (inner, uid, slow) = (self.inner.clone(), uid.clone(), path.clone());
        let write = async move {
            let permit = inner.writers.clone().acquire_owned().await;
            let write = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let outcome = inner.write(&uid, turn, &path, &record);
                inner.note(&uid, turn, &outcome);
                outcome
            });
            write.await
        };
        match tokio::time::timeout(DISK_WRITE_TIMEOUT, tokio::spawn(write)).await {
            Ok(Ok(Ok(outcome))) => outcome,
            // The runtime is shutting down, or the disk is too slow.
            Ok(_) | Err(_) => {
                let error = SpoolError::Slow { path: slow };
                self.inner.failed(&error);
                Err(error)
            }
        }
    }

    /// Removes the pod's record, if there is one. Does not wait for the disk. Without an async
    /// runtime the file stays.
    pub fn remove(&self, uid: &PodUid) {
        if !self.inner.forget(uid) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, uid) = (self.inner.clone(), uid.clone());
        runtime.spawn(async move {
            let permit = inner.writers.clone().acquire_owned().await;
            let unlink = move || {
                let _permit = permit;
                inner.unlink(&uid);
            };
            tokio::task::spawn_blocking(unlink).await
        });
    }

    /// Returns all records, oldest first. Unreadable files are set aside with `.bad` appended to
    /// their names; files that a power cut left half-written are removed.
    ///
    /// # Errors
    /// When the directory cannot be read. A missing one counts as empty.
    pub async fn load(&self) -> Result<Vec<StoredRecord<R>>, SpoolError> {
        let inner = self.inner.clone();
        let read = tokio::task::spawn_blocking(move || read::all(&inner));
        read.await.unwrap_or_else(|_| Err(SpoolError::Slow { path: self.inner.directory.clone() }))
    }

    /// Whether the pod has a record, or will have one.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.inner.state.lock().turns.contains_key(uid)
    }

    /// The state of the spool.
    pub fn stats(&self) -> SpoolStats {
        let state = self.inner.state.lock();
        SpoolStats { files: state.turns.len(), errors: state.errors, set_aside: state.set_aside }
    }
}

// === impl SpoolShared ===

impl SpoolShared {
    fn path(&self, uid: &PodUid) -> PathBuf {
        self.directory.join(file_name(uid))
    }

    /// Returns a turn for a record of the pod, and the pod whose record is one too many.
    fn take_turn(&self, uid: &PodUid) -> (u64, Option<PodUid>) {
        let mut state = self.state.lock();
        let turn = state.claim(uid);
        let surplus = (state.turns.len() > self.most)
            .then(|| state.by_turn.first_key_value().map(|(_, oldest)| oldest.clone()));
        (turn, surplus.flatten().filter(|oldest| oldest != uid))
    }

    /// Forgets the pod. Returns whether it was known.
    fn forget(&self, uid: &PodUid) -> bool {
        let mut state = self.state.lock();
        let turn = state.turns.remove(uid);
        turn.is_some_and(|turn| state.by_turn.remove(&turn).is_some())
    }

    fn is_current(&self, uid: &PodUid, turn: u64) -> bool {
        self.state.lock().turns.get(uid) == Some(&turn)
    }

    fn write<R: Serialize>(
        &self,
        uid: &PodUid,
        turn: u64,
        path: &Path,
        record: &R,
    ) -> Result<(), SpoolError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| SpoolError::Io { what, path, source }
        };
        let bytes = serde_json::to_vec(&RecordEnvelope::new(uid, self.wall.now(), record))
            .map_err(|source| SpoolError::Json { path: path.to_owned(), source })?;
        let draft = self.directory.join(file::draft_name(turn));
        let mut written = self.disk.write(&draft, &bytes);
        if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            let made = self.disk.create_directory(&self.directory);
            made.map_err(io("create", &self.directory))?;
            written = self.disk.write(&draft, &bytes);
        }
        let outcome = written.map_err(io("write", path)).and_then(|()| {
            let _naming = self.naming.lock();
            if !self.is_current(uid, turn) {
                return Err(SpoolError::Outdated { path: path.to_owned() });
            }
            self.disk.rename(&draft, path).map_err(io("write", path))
        });
        if let Err(error) = outcome {
            // A file that cannot be removed now is removed when the directory is read next.
            let _ = self.disk.remove(&draft);
            return Err(error);
        }
        self.disk.sync_directory(&self.directory).map_err(io("write", path))
    }

    fn unlink(&self, uid: &PodUid) {
        let _naming = self.naming.lock();
        // A newer record has taken its place.
        if self.state.lock().turns.contains_key(uid) {
            return;
        }
        let path = self.path(uid);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // It is sent once more after the next boot, which changes nothing.
                tracing::warn!(
                    path = %path.display(), error = error_chain(&error),
                    "cannot remove a record that is no longer needed"
                );
            }
            _ => {}
        }
    }

    /// Records the outcome of a write.
    fn note(&self, uid: &PodUid, turn: u64, outcome: &Result<(), SpoolError>) {
        match outcome {
            Ok(()) => {
                let recovered = std::mem::take(&mut self.state.lock().failing);
                if recovered {
                    tracing::info!(directory = %self.directory.display(), "records are written again");
                }
            }
            Err(SpoolError::Outdated { .. }) => {}
            Err(error) => {
                if self.is_current(uid, turn) {
                    self.forget(uid);
                }
                self.failed(error);
            }
        }
    }

    fn failed(&self, error: &SpoolError) {
        let first = {
            let mut state = self.state.lock();
            state.errors += 1;
            !std::mem::replace(&mut state.failing, true)
        };
        if first {
            tracing::error!(
                log_kind = "spoolNotWritten",
                error = error_chain(error),
                "cannot save final pod statuses: a power-off before the API server has them would \
                 lose them. Free space in this directory (logged once)"
            );
        }
    }
}

// === impl SpoolState ===

impl SpoolState {
    /// Assigns the next turn to the pod.
    fn claim(&mut self, uid: &PodUid) -> u64 {
        self.turn += 1;
        if let Some(former) = self.turns.insert(uid.clone(), self.turn) {
            self.by_turn.remove(&former);
        }
        self.by_turn.insert(self.turn, uid.clone());
        self.turn
    }
}
