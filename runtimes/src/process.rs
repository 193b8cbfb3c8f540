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
use std::time::Duration;

use tokio::sync::{Semaphore, broadcast, watch};
use winddown_shared::{
    Grace, Pod, PodRuntimeStatus, PodStopped, PodUid, Runtime, RuntimeError, RuntimePod, SyncedPod,
};

pub(crate) mod adopt;
pub(crate) mod asked;
pub(crate) mod cgroup;
mod config;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod hook;
pub(crate) mod launch;
pub(crate) mod order;
pub(crate) mod paths;
pub(crate) mod pod;
pub(crate) mod pod_record;
pub(crate) mod procfs;
pub(crate) mod record;
pub mod shim;
mod start;
pub(crate) mod stats;
pub(crate) mod status;
mod stop;
mod support;
pub(crate) mod watcher;

pub use adopt::OpenError;
pub use cgroup::unenforced;
pub use config::{CgroupParent, ProcessConfig, ShimCommand};
pub use support::check_supported;

use order::Command;
use pod::{PodEntry, Starting};

use crate::mount_table;
use crate::notes::Notes;
use crate::programs::ending::Target;
use crate::programs::hook::HookError;
use crate::programs::{Programs, sync};
use crate::stats::DiskCache;
use crate::unsupported::refused_or_ignored;

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

// === impl Context ===

impl Programs for Context {
    const SCHEME: &'static str = "process";

    fn config(&self) -> &ProcessConfig {
        &self.config
    }

    fn alive(&self) -> watch::Receiver<()> {
        self.alive.clone()
    }

    async fn start(
        self: &Arc<Self>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
    ) -> Result<(), RuntimeError> {
        start::start(self, starting, pod, name).await
    }

    async fn exec(
        self: &Arc<Self>,
        beside: (&Pod, &str),
        command: Command,
        _: Option<Duration>,
    ) -> Result<(), HookError> {
        hook::exec(self, beside, command).await
    }

    fn is_answer(_: &HookError) -> bool {
        true
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: Target,
        grace: Grace,
    ) -> Result<(), RuntimeError> {
        stop::end_one(self, entry, target, grace, Duration::ZERO).await
    }
}

// === impl ProcessRuntime ===

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

impl Runtime for ProcessRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let has_started = self.entry(pod.uid()).is_some_and(|entry| entry.lock().has_started());
        let mut unsupported = check_supported(pod);
        unsupported.extend(self.context.cgroups.unsupported(pod));
        let ignored = refused_or_ignored(pod, unsupported, has_started)?;
        let synced = sync::sync(&self.context, &self.entry_for(pod), pod).await?;
        Ok(SyncedPod { ignored, ..synced })
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        match self.entry(uid) {
            Some(entry) => stop::stop(&self.context, &entry, pod, grace).await,
            None => Ok(PodStopped::default()),
        }
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(uid) else { return Ok(()) };
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        let context = Arc::clone(&self.context);
        blocking(move || {
            context.cgroups.remove_pod(entry.uid())?;
            mount_table::unmount_below(&proc_root, &path)
                .map_err(|e| caused("taking away the pod's mounts".to_owned(), e))
        })
        .await
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(uid) else { return Ok(()) };
        let Some(places) = entry.lock().places(&self.context.config, uid) else {
            return Err(failed(format!("pod {uid} still runs: stop it before it is forgotten")));
        };
        let context = Arc::clone(&self.context);
        blocking(move || {
            context.cgroups.remove_pod(entry.uid())?;
            places.iter().try_for_each(remove_all)
        })
        .await?;
        self.pods().remove(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        Ok(self
            .entry(uid)
            .map(|entry| status::status(&entry.lock(), Context::SCHEME))
            .unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.pods().values().map(|entry| entry.lock().summary(entry.uid())).collect())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        blocking(move || mount_table::of_pod(&proc_root, &path)).await
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.context.changes.subscribe()
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

/// How often a directory that somebody still writes into is removed again.
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
