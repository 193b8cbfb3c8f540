//! Containers as transient services of systemd.
//!
//! # Behaviour
//! * As in the process runtime, `image` is not pulled: a container's `command` (or `args`) is a program of
//!   the host. What of a pod cannot be honoured that way is refused by name
//!   ([`process::check_supported`](crate::process::check_supported)).
//! * Each attempt of a container is a transient service `winddown-podUID-CONTAINER-ATTEMPT.service` in the
//!   slice `winddown-podUID.slice` of its pod, below `winddown.slice`. It has its own cgroup with the
//!   container's limits. It does not depend on the agent's life in any way.
//! * When to start, restart and end a container is decided here ([`plan`](winddown_engine::plan)), never by the
//!   service manager. It keeps how a container ended until the agent has written that down and asks it to
//!   forget; until then a unit that was never started is told from one that ran and ended.
//! * A second service writes the log, in the format and place of the other runtimes, and to the journal.
//! * A restarted or killed agent lists the units and goes on with them ([`SystemdRuntime::open`]). Units
//!   are not enabled: after a boot there are none.
//! * Nothing is polled: changes are heard from the service manager. One that hangs or is away is an error of
//!   the call at hand, and when it is back all units are looked at.
//!
//! # Limits
//! * No isolation but the cgroup's.
//! * That a container was ended for want of memory is seen on cgroup v2 only.
//! * What a container that ended well left running is ended by the agent: while none runs, it goes on.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, broadcast, watch};
use winddown_engine::disk_notes::Notes;
use winddown_engine::stats::DiskCache;
use winddown_engine::unsupported::refused_or_ignored;
use winddown_shared::{
    Grace, Pod, PodRuntimeStatus, PodStopped, PodUid, Runtime, RuntimeError, RuntimePod, SyncedPod,
    UnsupportedField,
};
use winddown_shim::order::Command;

mod adopt;
mod attempt;
mod end;
mod hook;
mod listen;
mod names;
mod open;
mod start;
mod stats;
mod stop;
mod unit_cache;
pub mod units;

pub use open::SystemdOpenError;

use unit_cache::UnitCache;
use units::ServiceUnits;

use crate::process::{
    blocking, caused, check_supported as supported_by_process, failed, remove_all,
};
use crate::programs::ending::Target;
use crate::programs::hook::HookError;
use crate::programs::pod::{PodEntry, Starting};
use crate::programs::{Programs, sync};
use crate::programs::{config::ProcessConfig, status};

/// UIDs of changed pods that a slow reader may fall behind before it has to look at all pods.
const CHANGES: usize = 1024;

/// Runs pods as transient services. See the [module](self).
///
/// Dropping it stops nothing: the services go on, and the next [`open`](Self::open) finds them.
#[derive(Debug)]
pub struct SystemdRuntime<U> {
    context: Arc<Context<U>>,
    pods: Mutex<HashMap<PodUid, Arc<PodEntry>>>,
    disk: DiskCache,
    /// Held for as long as this agent uses the state directory.
    _lock: File,
    /// Its end tells the watching tasks that the runtime is gone.
    _alive: watch::Sender<()>,
}

/// What every part of the runtime needs.
#[derive(Debug)]
pub(crate) struct Context<U> {
    pub(crate) config: ProcessConfig,
    pub(crate) units: U,
    pub(crate) unit_cache: UnitCache,
    pub(crate) changes: broadcast::Sender<PodUid>,
    pub(crate) starts: Arc<Semaphore>,
    pub(crate) alive: watch::Receiver<()>,
    pub(crate) asked: Notes,
    pub(crate) boot_id: String,
    /// Numbers the commands beside containers.
    pub(crate) hooks: AtomicU64,
    /// Pods with a start that was not answered.
    unsure: Mutex<HashSet<PodUid>>,
}

/// Everything of `pod` that this runtime cannot honour; empty if it runs the pod as written. Pure.
pub fn check_supported(pod: &Pod) -> Vec<UnsupportedField> {
    let mut found = supported_by_process(pod);
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    if all.any(|container| !names::fits(pod.uid(), &container.name)) {
        found.push(UnsupportedField {
            field: "metadata.uid".to_owned(),
            why:
                "with the containers' names it is too long for the name of a unit: use shorter ones"
                    .to_owned(),
        });
    }
    found
}

// === impl Context ===

impl<U> Context<U> {
    /// Notes that something may run of a pod without being known.
    pub(crate) fn unsure(&self, uid: &PodUid) {
        self.unsure_pods().insert(uid.clone());
    }

    pub(crate) fn is_unsure(&self, uid: &PodUid) -> bool {
        self.unsure_pods().contains(uid)
    }

    pub(crate) fn sure(&self, uid: &PodUid) {
        self.unsure_pods().remove(uid);
    }

    fn unsure_pods(&self) -> MutexGuard<'_, HashSet<PodUid>> {
        self.unsure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<U: ServiceUnits> Programs for Context<U> {
    const SCHEME: &'static str = "systemd";

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
        limit: Option<Duration>,
    ) -> Result<(), HookError> {
        hook::exec(self, beside, &command, limit).await
    }

    fn is_answer(error: &HookError) -> bool {
        // The service manager's trouble says nothing about the container.
        !matches!(error, HookError::Broken { .. })
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

// === impl SystemdRuntime ===

impl<U: ServiceUnits> SystemdRuntime<U> {
    /// Takes over the state directory, and every pod of it or of this kind that runs.
    ///
    /// # Errors
    /// The directories cannot be made or read, another agent uses them, or the service manager does not
    /// say what runs.
    pub async fn open(config: ProcessConfig, units: U) -> Result<Self, SystemdOpenError> {
        open::open(config, units).await
    }

    /// The service manager.
    pub fn units(&self) -> &U {
        &self.context.units
    }

    fn pods(&self) -> MutexGuard<'_, HashMap<PodUid, Arc<PodEntry>>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> Vec<Arc<PodEntry>> {
        self.pods().values().cloned().collect()
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

    /// Stops the pod's slice, and what is in it.
    async fn end_slice(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let slice = names::slice(uid);
        let stopped = self.context.units.stop(&slice).await;
        stopped.map_err(|error| caused(format!("cannot stop {slice}"), error))
    }
}

impl<U: ServiceUnits> Runtime for SystemdRuntime<U> {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let has_started = self.entry(pod.uid()).is_some_and(|entry| entry.lock().has_started());
        let ignored = refused_or_ignored(pod, check_supported(pod), has_started)?;
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
        match self.entry(uid) {
            Some(_) => self.end_slice(uid).await,
            None => Ok(()),
        }
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(uid) else { return Ok(()) };
        let Some(places) = entry.lock().places(&self.context.config, uid) else {
            return Err(failed(format!("pod {uid} still runs: stop it before it is forgotten")));
        };
        self.end_slice(uid).await?;
        blocking(move || places.iter().try_for_each(remove_all)).await?;
        self.pods().remove(uid);
        self.context.sure(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        let status = |entry: Arc<PodEntry>| status::status(&entry.lock(), Context::<U>::SCHEME);
        Ok(self.entry(uid).map(status).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.pods().values().map(|entry| entry.lock().summary(entry.uid())).collect())
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.context.changes.subscribe()
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        refused_or_ignored(pod, check_supported(pod), false).map(drop)
    }
}
