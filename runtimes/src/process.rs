//! Containers as supervised processes of the host.
//!
//! # Behaviour
//! * `image` is not pulled and not needed: a container's `command` (or `args`) is a program of the
//!   host. It runs in the host's namespaces; what of a pod cannot be honoured that way is refused by
//!   name ([`check_supported`]).
//! * Each attempt of a container has a supervisor process ([`shim`]), which owns it. A restarted or
//!   killed agent finds supervisors and containers again and goes on with them ([`ProcessRuntime::open`]).
//! * The agent sends SIGTERM to the container's main process only, as a container's process 1 gets
//!   it. SIGKILL goes to everything the container started.
//! * Nothing is polled: exits are heard from the supervisor's pipe or pidfd.
//!
//! # Limits
//! * No isolation: one user's processes see and may signal each other.
//! * CPU and memory limits are enforced in cgroups that were delegated to the agent ([`CgroupParent`]); where
//!   there are none, pods with limits are refused.
//! * If a supervisor is killed, what its container left is found in the container's cgroup. Where there is
//!   none it is found by its environment; a process that wiped its own is not.
//! * A pod that runs as root can leave its cgroup, as it can do anything else on the host.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, broadcast, watch};
use winddown_engine::disk_notes::Notes;
use winddown_engine::stats::DiskCache;
use winddown_shared::{Pod, PodUid, RuntimeError};

pub(crate) mod adopt;
pub(crate) mod cgroup;
pub(crate) mod hook;
mod runtime;
mod start;
pub(crate) mod stats;
mod stop;
pub(crate) mod watcher;

pub use crate::programs::config::{CgroupParent, ProcessConfig, ShimCommand};
pub use crate::programs::support::check_supported;
pub use adopt::OpenError;
pub use cgroup::unenforced;
pub use winddown_engine::NodeFacts;
pub use winddown_engine::plan::Backoff;
/// The supervisor of one container.
pub use winddown_shim as shim;

use crate::programs::pod::PodEntry;

/// UIDs of changed pods that a slow reader may fall behind before it has to look at all pods.
const CHANGES: usize = 1024;

/// Runs pods as supervised host processes. See the [module](self).
///
/// Dropping it stops nothing: the supervisors go on, and the next [`open`](Self::open) finds them.
#[derive(Debug)]
pub struct ProcessRuntime {
    context: Arc<Context>,
    pods: Mutex<HashMap<PodUid, Arc<PodEntry>>>,
    disk: DiskCache,
    /// Held for as long as this agent uses the state directory.
    _lock: File,
    /// Its end tells the watching tasks that the runtime is gone.
    _alive: watch::Sender<()>,
}

/// What every part of the runtime needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: ProcessConfig,
    pub(crate) changes: broadcast::Sender<PodUid>,
    pub(crate) starts: Arc<Semaphore>,
    pub(crate) cgroups: cgroup::Cgroups,
    pub(crate) alive: watch::Receiver<()>,
    pub(crate) boot_id: String,
    pub(crate) asked: Notes,
}

impl ProcessRuntime {
    /// Takes over the state directory and every pod that runs from it.
    ///
    /// Containers whose supervisor lives are adopted with their pids; of the others, what is left of
    /// their processes is killed and their exits are recorded.
    ///
    /// # Errors
    /// The directories cannot be made or read, or another agent uses them.
    pub async fn open(config: ProcessConfig) -> Result<Self, OpenError> {
        adopt::open(config).await
    }

    pub(crate) fn assemble(
        context: Arc<Context>,
        pods: HashMap<PodUid, Arc<PodEntry>>,
        lock: File,
        alive: watch::Sender<()>,
    ) -> Self {
        Self {
            context,
            pods: Mutex::new(pods),
            disk: DiskCache::default(),
            _lock: lock,
            _alive: alive,
        }
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<PodUid, Arc<PodEntry>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, uid: &PodUid) -> Option<Arc<PodEntry>> {
        self.pods().get(uid).cloned()
    }

    fn entry_for(&self, pod: &Pod) -> Arc<PodEntry> {
        let mut pods = self.pods();
        let entry = pods.entry(pod.uid().clone()).or_insert_with(|| {
            Arc::new(PodEntry::new(pod.uid().clone(), self.context.changes.clone()))
        });
        Arc::clone(entry)
    }
}

/// Runs blocking work off the async threads. Cancel-safe, but the work goes on.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(caused("waiting for a file operation".to_owned(), error)),
    }
}

pub(crate) fn failed(what: String) -> RuntimeError {
    RuntimeError::Failed { what, source: None }
}

/// How often the removal of a directory is retried that is still written to.
const REMOVALS: usize = 8;

pub(crate) fn caused(
    what: String,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RuntimeError {
    RuntimeError::Failed { what, source: Some(Arc::new(source)) }
}

/// Removes a directory, or a file. What a supervisor or a watcher still writes into it in the meantime (the last
/// words of an attempt) is removed with it: each writes once more at most.
pub(crate) fn remove_all(path: &PathBuf) -> Result<(), RuntimeError> {
    use std::io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    let mut result = std::fs::remove_dir_all(path);
    if matches!(&result, Err(e) if e.kind() == NotADirectory) {
        result = std::fs::remove_file(path);
    }
    for _ in 0..REMOVALS {
        match &result {
            Err(e) if e.kind() == DirectoryNotEmpty => result = std::fs::remove_dir_all(path),
            _ => break,
        }
    }
    match result {
        Err(e) if e.kind() != NotFound => {
            Err(caused(format!("cannot remove {}", path.display()), e))
        }
        _ => Ok(()),
    }
}
