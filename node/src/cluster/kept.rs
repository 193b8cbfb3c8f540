//! Records which pods of the API server run here, for the next agent of this boot.
//!
//! There is one file for each pod, in a directory that is lost with the boot: after a boot nothing runs, and the
//! API server says what should. Until it has been listed in this boot, no agent takes the records for complete, so that
//! pods of before the boot that start again find their volumes. The files contain values from Secrets, so only root
//! may read them, and they share one room with the volumes in memory.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1 as api;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use winddown_cluster::pods::{EarlierPods, KeepPods, PrepareError};
use winddown_pod_references::{MOST_BYTES_OF_VARIABLES, MemoryRoom};
use winddown_shared::{BootClock, Pod, PodUid, error_chain, millis};

use crate::kept_file::{self, SET_ASIDE, has_ending};

/// The most bytes of a record: what may be written may be read.
const MOST_BYTES: u64 = kept_file::MOST_BYTES + MOST_BYTES_OF_VARIABLES as u64;
/// The file that marks the records as complete.
const ALL: &str = "all";

/// The directory of the records. Cheap to clone. A write error is logged once and is not fatal.
#[derive(Clone, Debug)]
pub(crate) struct KeptPods(Arc<KeptPodsShared>);

#[derive(Debug)]
struct KeptPodsShared {
    directory: PathBuf,
    refused: AtomicBool,
    room: MemoryRoom,
    clock: BootClock,
    /// Held by each write, so that the later of two writes for the same pod wins, and none waits on a thread.
    writing: Arc<Mutex<()>>,
}

/// The content of a record: the pod, and the end of its grace.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptPod<'a> {
    #[serde(flatten)]
    pod: Cow<'a, api::Pod>,
    /// When its grace ends, if it has to terminate, in milliseconds since the boot. The time for which the machine was
    /// suspended does not count: the timers of the agent that asked stand still then. Absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until_awake_ms: Option<u64>,
}

// === impl KeptPods ===

impl KeptPods {
    /// The parent of the directories of boots, in the node's directory for what may be lost with the boot.
    pub(crate) fn parent(volatile: &Path) -> PathBuf {
        volatile.join("api-pods")
    }

    /// The directories of boots. Blocking.
    pub(crate) fn directories(volatile: &Path) -> Vec<PathBuf> {
        let boots = std::fs::read_dir(Self::parent(volatile)).into_iter().flatten().flatten();
        boots.map(|boot| boot.path()).collect()
    }

    /// The directory of this boot below `parent`. Removes those of other boots, whose pods no longer run. Blocking.
    pub(crate) fn of_boot(
        parent: &Path,
        (boot_id, clock): (&str, &BootClock),
        room: MemoryRoom,
    ) -> Self {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let name: String = boot_id.chars().filter(|c| valid(*c)).collect();
        let name = if name.is_empty() { "unknown-boot".to_owned() } else { name };
        let directory = parent.join(&name);
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.path() != directory {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Self(Arc::new(KeptPodsShared {
            directory,
            refused: AtomicBool::new(false),
            room,
            clock: clock.clone(),
            writing: Arc::default(),
        }))
    }

    /// Reads the records of an earlier agent. A file that cannot be read is renamed. Blocking.
    pub(crate) fn load(&self) -> EarlierPods {
        let directory = &self.0.directory;
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return EarlierPods::default();
            }
            Err(error) => {
                tracing::warn!(
                    directory = %directory.display(), error = error_chain(&error),
                    "the pods of the API that run here are not known until the API server answers"
                );
                return EarlierPods::default();
            }
        };
        let complete = directory.join(ALL).exists();
        let mut found = EarlierPods { complete, ..EarlierPods::default() };
        for path in entries.flatten().map(|entry| entry.path()) {
            if has_ending(&path, SET_ASIDE) {
                // An earlier agent of this boot could not read it, and the API server has not been listed since.
                found.complete = false;
            }
            if !has_ending(&path, kept_file::ENDING) {
                continue;
            }
            match self.0.read(&path) {
                Ok(pod) => {
                    let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
                    self.0.room.note_record(pod.uid(), bytes);
                    found.pods.push(pod);
                }
                Err(error) => {
                    tracing::warn!(
                        file = %path.display(), error = error_chain(&*error),
                        "cannot read the record of a pod; setting it aside"
                    );
                    kept_file::set_aside(&path);
                    found.complete = false;
                }
            }
        }
        found
    }

    /// Runs work on the directory off the async threads, one piece at a time.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&KeptPodsShared) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (inner, turn) = (Arc::clone(&self.0), Arc::clone(&self.0.writing).lock_owned().await);
        let work = move || {
            let _turn = turn;
            work(&inner)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

// === impl KeptPodsShared ===

impl KeptPodsShared {
    /// Writes the record of a pod if there is room for it. Blocking.
    fn write(&self, pod: &Pod, until: Option<u64>) -> io::Result<Result<(), PrepareError>> {
        let path = kept_file::path(&self.directory, pod.uid())?;
        let kept = KeptPod { pod: Cow::Borrowed(pod.object()), until_awake_ms: until };
        let text = serde_json::to_vec(&kept)?;
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let there = self.directory.ancestors().find(|one| one.is_dir()).unwrap_or(&self.directory);
        match self.room.turn_of_record(there, pod.uid(), bytes) {
            Ok(_turn) => kept_file::write_text(&path, &text).map(Ok),
            Err(no_room) => Ok(Err(no_room)),
        }
    }

    /// Reads the record of a pod. One that has to terminate is granted what is left of its grace. Blocking.
    fn read(&self, path: &Path) -> Result<Pod, Box<dyn std::error::Error>> {
        let KeptPod { pod, until_awake_ms } = kept_file::read(path, MOST_BYTES)?;
        let mut object = pod.into_owned();
        if let Some(until) = until_awake_ms {
            let left = until.saturating_sub(self.awake_ms()).div_ceil(1000);
            object.metadata.deletion_grace_period_seconds = i64::try_from(left).ok();
        }
        Ok(Pod::new(object)?)
    }

    /// The time since the boot without that for which the machine was suspended.
    fn awake_ms(&self) -> u64 {
        millis(self.clock.now().saturating_sub(self.clock.suspended()))
    }
}

impl KeepPods for KeptPods {
    fn keep(&self, pod: Pod) -> BoxFuture<'_, Result<(), PrepareError>> {
        // From when it is asked to terminate, whenever its turn to be written comes.
        let grace = pod.metadata.deletion_grace_period_seconds.map(i64::unsigned_abs);
        let ends = |grace: u64| grace.saturating_mul(1000).saturating_add(self.0.awake_ms());
        let until = grace.map(ends);
        async move {
            let error = match self.blocking(move |inner| inner.write(&pod, until)).await {
                Ok(kept) => return kept,
                Err(error) => error,
            };
            // First, so that the mark is not made again once it is removed.
            let is_logged = self.0.refused.swap(true, Ordering::Relaxed);
            let _ = self.blocking(|inner| std::fs::remove_file(inner.directory.join(ALL))).await;
            if !is_logged {
                tracing::warn!(
                    directory = %self.0.directory.display(), error = error_chain(&error),
                    "cannot record which pods of the API run here: if the agent restarts while the API \
                     server is unavailable, they keep running unattended until it is back"
                );
            }
            Ok(())
        }
        .boxed()
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, ()> {
        async move {
            let Ok(path) = kept_file::path(&self.0.directory, uid) else { return };
            let uid = uid.clone();
            let removed = self.blocking(move |inner| {
                inner.room.forget_record(&uid);
                std::fs::remove_file(path)
            });
            // A file that remains is loaded at the next start, and the API server then does not have the pod.
            let _ = removed.await;
        }
        .boxed()
    }

    fn all_known(&self) -> BoxFuture<'_, ()> {
        async move {
            let noted = self.blocking(|inner| {
                if inner.refused.load(Ordering::Relaxed) {
                    return Ok(());
                }
                kept_file::write(&inner.directory.join(ALL), &())?;
                let entries = std::fs::read_dir(&inner.directory)?.flatten();
                entries
                    .map(|entry| entry.path())
                    .filter(|path| has_ending(path, SET_ASIDE))
                    .try_for_each(std::fs::remove_file)
            });
            // Without the mark, the next agent waits for the API server again.
            let _ = noted.await;
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
