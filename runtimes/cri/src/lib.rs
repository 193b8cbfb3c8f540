//! Runs pods as containers of a runtime that implements the Container Runtime Interface v1, such as containerd or
//! CRI-O.
//!
//! # Behaviour
//! * The runtime does not have to be up when the agent starts, and may be restarted at any moment: calls
//!   fail with an error that says what to do, and the pod workers try again. Each call has a
//!   deadline, so a hung runtime delays one pod and no other.
//! * Everything this agent creates carries a label of its own ([`CriRuntime`] never touches the rest, for
//!   example a kubelet's pods) and the kubelet's labels, so that `crictl pods` reads well. The
//!   labels are the only record: an agent that was restarted or killed lists, adopts and continues. Names
//!   contain the attempt number and can be taken only once, so nothing is created twice.
//! * The state of all containers is kept in memory. Exits are reported by a pidfd of the container's first process,
//!   and by `GetContainerEvents` where the runtime supports it; a full listing once a minute is the safety net.
//! * A stop does not query the runtime before it signals the containers. Where containers are
//!   ordinary processes the agent signals them itself ([`CriConfig::signal_directly`]), so that a
//!   hundred are signalled at once and a hung runtime delays no stop.
//!
//! # Limits
//! * A pod's cgroup gets the weight of the pod's CPU request, but no limits; the limits of its containers are applied.
//! * Volumes are `hostPath` and `emptyDir`. [`check_supported`] refuses everything else that is not supported, and
//!   names the field.
//!
//! # Design
//!
//! `runtimes/cri/src/tree.rs` resolves the paths of volumes one name at a time, by descriptors, in the files of process 1 or inside
//! one volume. `host_mount` does what the agent's unit may not do, mounts and the group of a volume: it
//! runs `winddownd` again, as a transient unit outside the sandbox.
//!
//! A pod may have the logs' directory or the agent's own as a volume. What it can reach there is opened, made, renamed and
//! removed below the last directory that only root can change (`winddown_host::regular`), where no link is followed and no
//! pipe waited for; what waits for a termination message waits two seconds.
//!
//! After a failed call the agent first looks up what the call left behind: what the runtime holds counts, not what it
//! answered. A stop may hold a container's mount namespace so that the kernel reports its end at once; the namespace is
//! released when the pod is cleaned up. The end of the connection to the runtime is an event; pods that failed meanwhile
//! are retried when the runtime is back.
//!
//! A stop waits at most a second for adoption. The first process of each container is recorded beside its termination
//! message; an agent that was started beside a silent runtime ends a pod by these records (`runtimes/cri/src/offline_stop.rs`).
//! Control groups show whether a process still belongs to its container, and whether anything else of the pod runs. If they
//! cannot show that, the stop fails and the pod is left alone. Containers of another program are ended by the processes that
//! the runtime named while it answered (`runtimes/cri/src/foreign_containers/stop.rs`).
//!
//! The agent's node treats the configured runtime as one type (`programs/daemon/src/service/configured.rs`), so that it is compiled
//! once and not once for each runtime.
//!
//! While many containers end, the pods' control group has the weight of that many processes, and the agent runs at nice
//! -10: otherwise dying containers wait for a processor behind the runtime's clean-up. An exit code is read from the
//! zombie, before its parent collects it.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, broadcast, watch};
use tokio::time::{Instant, timeout};
use winddown_engine::action_error::ActionError;
use winddown_engine::disk_notes::{Notes, RunNote};
use winddown_engine::driver::Driver;
use winddown_engine::driver::StopTarget;
use winddown_engine::failure::{blocking, blocking_on, caused, failed};
use winddown_engine::machine_lock::MachineLock;
use winddown_engine::pods::Pods;
use winddown_engine::probe_client::ProbeHost;
use winddown_engine::status::status;
use winddown_engine::stopping;
use winddown_engine::termination_message::TerminationMessages;
use winddown_engine::termination_notices::TerminationNotices;
use winddown_engine::unsupported::refused_or_ignored;
use winddown_host::mount_table;
use winddown_shared::{
    Freed, Garbage, Grace, MemoryFigure, Mutex, NodeEnding, Pod, PodRuntimeStatus, PodStats,
    PodStopped, PodUid, Recorder, Runtime, RuntimeError, RuntimePlaces, RuntimePod, SyncedPod,
};

mod api;
mod begun_hooks;
mod by_pod;
mod cgroup;
mod client;
mod config;
mod cpu_weight;
mod dead_links;
mod direct;
mod dirs;
mod end_note;
mod events;
mod exec;
mod exits;
mod first_processes;
mod foreign_containers;
mod foreign_hooks;
mod foreign_pods;
mod foreign_turns;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
mod handlers;
mod health;
mod health_check;
pub mod host_mount;
mod image;
mod images;
mod kernel_limits;
mod labels;
mod list;
pub(crate) mod logs;
mod masked_paths;
mod mounts;
mod name_conflict;
mod observe;
mod offline_stop;
mod open;
mod pod;
mod pod_groups;
mod process_note;
mod reclaim;
mod sandbox;
#[cfg(test)]
mod scene;
mod shares;
mod slices;
mod spec;
mod start;
mod stats;
mod stop;
mod streams;
mod support;
mod sync;
mod tree;
mod volumes;

pub use client::RuntimeEndpointError;
pub use config::{CgroupDriver, CgroupSettings, CriConfig, CriPaths, CriTimes, Dns, Logs, Starts};
pub use foreign_containers::{ForeignPod, PodContainers};
pub use health::CriHealth;
pub use offline_stop::has_running;
pub use open::CriOpenError;
pub use slices::PodSlices;
pub use support::check_supported;
pub use winddown_engine::EnvironmentFacts;
pub use winddown_engine::container_plan::CrashBackoff;

use client::CriClient;
use pod::{InSandbox, PodEntry, PodState, Starting};

/// How long a stop waits for the runtime's first answer.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// Runs pods as containers of a CRI runtime. See the [module](self).
///
/// Dropping it stops nothing: the containers keep running, and the next [`open`](Self::open) finds them.
#[derive(Debug)]
pub struct CriRuntime {
    context: Arc<CriContext>,
    /// The lock on the state directory.
    _locks: (File, MachineLock),
    /// Dropping it ends the runtime's background tasks.
    _alive: watch::Sender<()>,
}

/// State shared by all parts of the runtime.
#[derive(Debug)]
pub(crate) struct CriContext {
    pub(crate) config: CriConfig,
    pub(crate) client: CriClient,
    pub(crate) health: watch::Sender<CriHealth>,
    pub(crate) starts: Semaphore,
    pub(crate) cleaning: garbage::Cleaning,
    pub(crate) driver: sandbox::RuntimeCgroupDriver,
    pub(crate) handlers: handlers::Handlers,
    pub(crate) alive: watch::Receiver<()>,
    pub(crate) stats: stats::LastMeasurement,
    pub(crate) images: Images,
    /// Writes the files that mark runs as asked to stop, or as not ready.
    pub(crate) notes: Notes,
    pub(crate) messages: TerminationMessages,
    pub(crate) termination_notices: TerminationNotices,
    pub(crate) pods: Pods<InSandbox>,
    listing: Listing,
}

#[derive(Debug)]
pub(crate) struct Images {
    /// Limits how many are pulled at once.
    pub(crate) pulls: Semaphore,
    pub(crate) ages: reclaim::ImageAges,
    /// Notified when an image was pulled or removed.
    pub(crate) changed: Notify,
}

/// What is known of the runtime's pods as a whole.
#[derive(Debug, Default)]
struct Listing {
    /// Pods whose last sync failed since the runtime was last reachable.
    failed: Mutex<HashSet<PodUid>>,
    adopted: AtomicBool,
    /// Whether the runtime was asked about single pods, because it has too much to say of all.
    by_pod: AtomicBool,
    /// Held during the first listing; contains the time and the error of the last one that failed.
    adopting: tokio::sync::Mutex<Option<(Instant, RuntimeError)>>,
    /// Held during a full listing. A second one running next to it would skip the pods that the first has just found,
    /// and finish before it is known what runs in them.
    turn: tokio::sync::Mutex<()>,
}

impl CriRuntime {
    /// Locks the state directory and prepares the connection; the runtime does not have to be up yet. Waits a
    /// second for a directory that another agent holds: an agent that was killed may hold it a moment longer.
    ///
    /// Must be called inside a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// The endpoint is not a socket, the directories cannot be created, or another agent uses them.
    pub async fn open(config: CriConfig) -> Result<Self, CriOpenError> {
        open::open(config).await
    }

    /// Whether it applies `supplementalGroupsPolicy: Strict`: the container runtime merges, as all did before the field
    /// existed.
    pub const STRICT_GROUPS: bool = false;

    /// The runtime's health, with its changes.
    pub fn health(&self) -> watch::Receiver<CriHealth> {
        self.context.health.subscribe()
    }
}

impl Runtime for CriRuntime {
    fn applies_strict_groups(&self) -> bool {
        Self::STRICT_GROUPS
    }

    fn pod_logs(&self) -> Option<&Path> {
        Some(&self.context.config.logs.dir)
    }

    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let synced = async {
            self.context.ensure_adopted().await?;
            let entry = self.context.pods.get_or_new(pod.uid());
            sync::sync(&self.context, &entry, pod).await
        };
        let synced = synced.await;
        if synced.is_err() {
            self.context.listing.failed.lock().insert(pod.uid().clone());
        }
        synced
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        if let Err(error) = self.context.adopted_soon().await {
            return match pod {
                Some(pod) => offline_stop::stop(&self.context, pod, grace).await,
                None => Err(error),
            };
        }
        match self.context.pods.get(uid) {
            Some(entry) => {
                let _in_flight = self.context.cleaning.hold(|| self.context.pods.anything_runs());
                stopping::stop(&self.context, &entry, pod, grace).await
            }
            None => Ok(PodStopped::of_nothing()),
        }
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.context.ensure_adopted().await?;
        match self.context.pods.get(uid) {
            Some(entry) => garbage::clean(&self.context, &entry).await,
            None => Ok(()),
        }
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.context.ensure_adopted().await?;
        // Its directories may be there even if the runtime has nothing of it.
        let entry = self.context.pods.get_or_new(uid);
        garbage::forget(&self.context, &entry).await?;
        self.context.pods.remove(uid);
        self.context.listing.failed.lock().remove(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        let entry = self.context.pods.get(uid);
        if entry.as_ref().is_none_or(|entry| entry.lock().own.offline_cgroups.is_none()) {
            self.context.ensure_adopted().await?;
        }
        let entry = self.context.pods.get(uid);
        Ok(entry.map(|entry| self.context.status(&entry)).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        list::list_all(&self.context).await?;
        let mut listed = self.context.pods.list();
        listed.extend(garbage::forgotten(&self.context).await?);
        Ok(listed)
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        let (proc_root, path) =
            (self.context.config.paths.proc.clone(), dirs::pod(&self.context.config, uid));
        blocking(move || mount_table::of_pod(&proc_root, &path)).await
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.context.pods.changes()
    }

    fn record_to(&self, recorder: &Arc<dyn Recorder>) {
        self.context.pods.record_to(recorder);
    }

    fn identify_as(&self, program: &str) {
        self.context.pods.identify_as(program);
    }

    fn announce(&self, ending: Option<Arc<NodeEnding>>) {
        self.context.termination_notices.announce(ending, &self.context.pods);
    }

    fn has_completed(&self, pod: &Pod) -> bool {
        self.context.pods.get(pod.uid()).is_some_and(|entry| entry.lock().has_completed(pod))
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        refused_or_ignored(check_supported(pod), false).map(drop)
    }

    async fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError> {
        stats::of_pods(&self.context, disk_age).await.map(Some)
    }

    async fn places(&self) -> Result<RuntimePlaces, RuntimeError> {
        stats::runtime_places(&self.context).await
    }

    async fn collect_garbage(&self, what: Garbage) -> Result<Freed, RuntimeError> {
        reclaim::collect(&self.context, what).await
    }

    async fn reclaim_memory(
        &self,
        uid: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<Freed, RuntimeError> {
        reclaim::take_back(&self.context, uid, figure, bytes, time).await
    }
}

impl Driver for CriContext {
    type RunScope = InSandbox;

    fn pods(&self) -> &Pods<InSandbox> {
        &self.pods
    }

    fn alive(&self) -> watch::Receiver<()> {
        self.alive.clone()
    }

    fn termination_notices(&self) -> &TerminationNotices {
        &self.termination_notices
    }

    fn pod_logs(&self) -> &Path {
        &self.config.logs.dir
    }

    fn log_links(&self) -> Option<&Path> {
        self.config.logs.links.as_deref()
    }

    fn probe_host(&self, state: &PodState) -> ProbeHost {
        let found = state.own.is_on_host_network;
        let is_on_host_network = state.pod.as_ref().map_or(found, Pod::is_on_host_network);
        let node = || self.config.node.host_addresses().first().copied();
        ProbeHost::of_pod(is_on_host_network, state.ips.first().map(String::as_str), node)
    }

    fn note(&self, entry: &Arc<PodEntry>, run: (&str, u32), note: RunNote, holds: bool) {
        let (name, attempt) = run;
        self.notes.set(dirs::note(&self.config, entry.uid(), name, attempt, note), holds);
    }

    async fn exec(
        self: &Arc<Self>,
        _: &Arc<PodEntry>,
        (_, id): (&str, &str),
        command: &[String],
        limit: Duration,
    ) -> Result<(), ActionError> {
        exec::exec(self, id, command, limit).await
    }

    async fn ask_grpc(&self, uri: &str, service: &str) -> Result<(), ActionError> {
        exec::ask_grpc(uri, service, &self.pods.program()).await
    }

    async fn make_room(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        pod: &Pod,
    ) -> Result<bool, RuntimeError> {
        sync::ensure_sandbox(self, entry, pod).await
    }

    async fn start(
        self: &Arc<Self>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
    ) -> Result<Option<Arc<str>>, RuntimeError> {
        start::start(self, starting, pod, name).await
    }

    async fn settle(self: &Arc<Self>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        stop::settle(self, entry).await
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
        grace: Grace,
    ) -> Result<(), RuntimeError> {
        stop::end(self, entry, (&target.name, &target.id), grace).await
    }
}

impl CriContext {
    fn new(config: CriConfig, client: CriClient, alive: watch::Receiver<()>) -> Self {
        Self {
            starts: Semaphore::new(config.starts.parallel.max(1)),
            cleaning: garbage::Cleaning::default(),
            health: watch::Sender::new(CriHealth::unknown()),
            driver: sandbox::RuntimeCgroupDriver::default(),
            handlers: handlers::Handlers::default(),
            alive,
            stats: stats::LastMeasurement::default(),
            images: Images {
                pulls: Semaphore::new(config.parallel_pulls.max(1)),
                ages: reclaim::ImageAges::default(),
                changed: Notify::new(),
            },
            notes: Notes::start(),
            messages: TerminationMessages::default(),
            termination_notices: TerminationNotices::start(
                config.paths.notices.clone(),
                config.wall.clone(),
            ),
            pods: Pods::default(),
            listing: Listing::default(),
            config,
            client,
        }
    }

    /// Retries pods that failed while the runtime or its network was away, without waiting for their backoff.
    pub(crate) fn retry_failed(&self) {
        let failed = std::mem::take(&mut *self.listing.failed.lock());
        for uid in failed {
            self.pods.announce(uid);
        }
    }

    /// The status of the pod's containers, as far as it is known.
    pub(crate) fn status(&self, entry: &PodEntry) -> PodRuntimeStatus {
        let scheme = self.scheme();
        status(&entry.lock(), &scheme)
    }

    /// Lists once what an earlier agent left. Before that, nothing may be started or reported as
    /// stopped.
    async fn ensure_adopted(self: &Arc<Self>) -> Result<(), RuntimeError> {
        if self.listing.adopted.load(Ordering::Acquire) {
            return Ok(());
        }
        let came = Instant::now();
        let mut failure = self.listing.adopting.lock().await;
        if self.listing.adopted.load(Ordering::Acquire) {
            return Ok(());
        }
        // All callers that waited share the answer. If each tried again, a hung runtime would make them wait
        // one after the other, once for each pod.
        if let Some((_, error)) = failure.as_ref().filter(|(when, _)| *when >= came) {
            return Err(error.clone());
        }
        let looked = list::list_all(self).await;
        *failure = looked.as_ref().err().map(|error| (Instant::now(), error.clone()));
        looked
    }

    /// Like [`ensure_adopted`](Self::ensure_adopted), but with a short wait: a pod can be stopped without the runtime.
    async fn adopted_soon(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let what = || "listing what the container runtime has".to_owned();
        let silent = |_| RuntimeError::Timeout { what: what(), after: STOP_PATIENCE };
        timeout(STOP_PATIENCE, self.ensure_adopted()).await.map_err(silent)?
    }

    /// Waits for one of the slots that limit how many starts run at once. After [`Starts::patience`] the caller
    /// continues without one: calls that hang must not keep other pods from starting.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        timeout(self.config.starts.patience, self.starts.acquire()).await.ok()?.ok()
    }

    pub(crate) fn set_adopted(&self) {
        self.listing.adopted.store(true, Ordering::Release);
    }

    /// The prefix of the runtime's container IDs, such as `containerd` or `cri-o`. Known once the version is.
    fn scheme(&self) -> String {
        let health = self.health.borrow();
        health.version.split(' ').next().filter(|name| !name.is_empty()).unwrap_or("cri").to_owned()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
