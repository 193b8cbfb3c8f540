//! Runs programs of the host as containers: syncs, starts, probes, hooks, stops, adoption and stats. A
//! [`ProgramDriver`] knows how to run and stop a program: [`process`](crate::process) supervises it,
//! [`systemd`](crate::systemd) leaves that to the service manager.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use winddown_engine::action_error::ActionError;
use winddown_engine::container_plan;
use winddown_engine::disk_notes::{Notes, RunNote};
use winddown_engine::driver::Driver;
use winddown_engine::driver::StopTarget;
use winddown_engine::pods::Pods;
use winddown_engine::probe_client::ProbeHost;
use winddown_engine::stats::DiskCache;
use winddown_engine::termination_notices::TerminationNotices;
use winddown_shared::{Grace, Pod, PodEventKind, PodUid, RuntimeError, UnsupportedField};
use winddown_shim::order::ExecCommand;

pub(crate) mod adopt;
pub(crate) mod config;
pub(crate) mod draft;
mod end;
pub(crate) mod exits;
pub(crate) mod launch;
mod launcher_report;
pub(crate) mod open;
mod output;
pub(crate) mod paths;
pub(crate) mod pod;
pub(crate) mod pod_record;
mod runtime;
pub(crate) mod stats;
mod streams;
pub(crate) mod support;

use config::ProcessConfig;
pub(crate) use winddown_engine::failure::{blocking, blocking_on, caused, failed};

use launcher_report::LauncherReport;
use pod::{Boot, PodEntry, PodState, Run, Starting};
use stats::StatsSources;
pub(crate) use streams::CommandFiles;

/// Runs pods as programs of the host, using the driver `D`.
///
/// Dropping it stops nothing: the containers continue, and the next runtime that is opened finds them.
#[derive(Debug)]
pub struct ProgramRuntime<D> {
    pub(crate) context: Arc<ProgramContext<D>>,
    disk: DiskCache,
    /// Held for as long as this agent uses the state directory.
    _lock: File,
    /// When this is dropped, the watching tasks learn that the runtime is gone.
    _alive: watch::Sender<()>,
}

/// The state that all parts of the runtime share.
#[derive(Debug)]
pub(crate) struct ProgramContext<D> {
    pub(crate) config: ProcessConfig,
    pub(crate) pods: Pods<Boot>,
    pub(crate) starts: Semaphore,
    pub(crate) alive: watch::Receiver<()>,
    pub(crate) boot_id: String,
    /// Records on disk which attempts were sent the stop signal, and which are not ready.
    pub(crate) notes: Notes,
    pub(crate) termination_notices: TerminationNotices,
    pub(crate) driver: D,
}

/// A way to run programs of the host as containers. Each call can fail or be slow; all are bounded.
///
/// Taking over what an earlier agent left is part of opening a runtime, which each driver does by itself.
// Over the limit because it is all in which a process and a service of systemd differ as a container.
pub(crate) trait ProgramDriver: Sized + Send + Sync + 'static {
    /// The scheme of its container ids.
    const SCHEME: &'static str;

    /// Returns every field of a pod that the driver cannot honour.
    fn unsupported(&self, pod: &Pod) -> Vec<UnsupportedField>;

    /// Starts an attempt of the pod's container `name`, and watches it from then on. `next` is the attempt's number and
    /// the backoff that was waited before it. Resolves when it runs; with an error if the pod is being stopped.
    ///
    /// # Errors
    /// The attempt cannot be started, or it is unknown whether it was.
    fn start(
        context: &Arc<ProgramContext<Self>>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
        next: (u32, Duration),
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Runs a command beside the pod's container, and resolves with its exit code. Dropping the future kills the
    /// command and whatever it forked; `limit` is the longest time that it may run.
    ///
    /// # Errors
    /// The command cannot be run, or runs for longer than `limit`.
    fn exec(
        context: &Arc<ProgramContext<Self>>,
        beside: (&Pod, &str),
        command: ExecCommand,
        files: CommandFiles,
        limit: Duration,
    ) -> impl Future<Output = Result<i32, ActionError>> + Send;

    /// Resolves when no start of the pod is in progress and all its running containers are known.
    ///
    /// # Errors
    /// A start does not finish, or it is unknown what runs.
    fn settle(
        context: &Arc<ProgramContext<Self>>,
        entry: &Arc<PodEntry>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Sends the stop signal to a container's main process. A process that cannot be signalled will be killed later.
    fn send_stop_signal(
        context: &Arc<ProgramContext<Self>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
    ) -> impl Future<Output = ()> + Send;

    /// Kills all processes of a container. Called again, with `round` one higher, if the container still runs.
    fn kill(
        context: &Arc<ProgramContext<Self>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
        round: u32,
    ) -> impl Future<Output = ()> + Send;

    /// Explains why a container still runs although it was killed, as far as that is known.
    fn unkillable_error(
        context: &Arc<ProgramContext<Self>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
    ) -> impl Future<Output = RuntimeError> + Send;

    /// Kills and removes everything that is left of a stopped pod, except its records. May be repeated.
    ///
    /// # Errors
    /// Something of the pod remains.
    fn clean_up(
        context: &Arc<ProgramContext<Self>>,
        uid: &PodUid,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Where the resource usage of a run can be read.
    fn stats_sources(&self, uid: &PodUid, container: &str, run: &Run) -> StatsSources;

    /// The cgroup that counts the memory of all pods, relative to the root of its hierarchy; none without cgroups.
    fn pods_cgroup(&self) -> Option<String>;
}

// === impl ProgramRuntime ===

impl<D> ProgramRuntime<D> {
    /// `alive` is the sender of the context's receiver.
    pub(crate) fn assemble(
        context: Arc<ProgramContext<D>>,
        lock: File,
        alive: watch::Sender<()>,
    ) -> Self {
        Self { context, disk: DiskCache::default(), _lock: lock, _alive: alive }
    }
}

// === impl ProgramContext ===

impl<D: ProgramDriver> Driver for ProgramContext<D> {
    type RunScope = Boot;

    fn pods(&self) -> &Pods<Boot> {
        &self.pods
    }

    fn alive(&self) -> watch::Receiver<()> {
        self.alive.clone()
    }

    fn termination_notices(&self) -> &TerminationNotices {
        &self.termination_notices
    }

    fn pod_logs(&self) -> &Path {
        &self.config.log_dir
    }

    fn log_links(&self) -> Option<&Path> {
        self.config.log_links.as_deref()
    }

    fn probe_host(&self, _: &PodState) -> ProbeHost {
        ProbeHost::Node(self.config.node.host_addresses().first().copied())
    }

    fn note(&self, entry: &Arc<PodEntry>, run: (&str, u32), note: RunNote, holds: bool) {
        let (name, attempt) = run;
        let container = paths::container(&self.config, entry.uid(), name);
        self.notes.set(paths::note(&container.join(attempt.to_string()), note), holds);
    }

    async fn exec(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        (name, _): (&str, &str),
        argv: &[String],
        limit: Duration,
    ) -> Result<(), ActionError> {
        let unasked = |error: io::Error| ActionError::Unasked {
            what: format!("cannot run {}", argv.join(" ")),
            source: Some(Box::new(error)),
        };
        let (pod, mut command) = self.beside(entry, name, argv)?;
        let (report, held) = LauncherReport::new(&self.config.proc_root).map_err(unasked)?;
        command.error_file = Some(report.path());
        let run = output::of(async |mut files| {
            files.held.push(held);
            D::exec(self, (&pod, name), command, files, limit).await
        });
        let (outcome, output) = run.await.map_err(unasked)?;
        match outcome? {
            0 => Ok(()),
            code => Err(match report.read().map_err(unasked)? {
                Some(what) => ActionError::Unasked { what, source: None },
                None => ActionError::exited(argv, code, &output),
            }),
        }
    }

    async fn start(
        self: &Arc<Self>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
    ) -> Result<Option<Arc<str>>, RuntimeError> {
        let entry = Arc::clone(starting.entry());
        let _turn = tokio::select! {
            turn = self.starts.acquire() => turn,
            () = winddown_engine::pod::stopping(&entry) => return Ok(None),
        };
        let next = {
            let mut state = entry.lock();
            let stopping = state.stopping;
            let is_due = state.container(name).is_some_and(|c| !stopping && !c.is_running());
            state.next(name, &self.config.backoff).filter(|_| is_due)
        };
        let Some(next) = next else { return Ok(None) };
        D::start(self, starting, pod, name, next).await?;
        self.pods.record_event(&entry, Some(name), PodEventKind::Created);
        Ok(entry.lock().attempt(name, next.0).map(|run| Arc::clone(&run.id)))
    }

    async fn settle(self: &Arc<Self>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        D::settle(self, entry).await
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
        grace: Grace,
    ) -> Result<(), RuntimeError> {
        end::end(self, entry, target, grace).await
    }
}

impl<D> ProgramContext<D> {
    /// Returns the pod, and a command as the container would run it.
    ///
    /// # Errors
    /// The container does not exist any more, or its environment is unknown.
    fn beside(
        &self,
        entry: &PodEntry,
        name: &str,
        argv: &[String],
    ) -> Result<(Pod, ExecCommand), ActionError> {
        let state = entry.lock();
        let what = || format!("cannot run {}", argv.join(" "));
        let unknown = || ActionError::Unasked { what: what(), source: None };
        let pod = state.pod.as_ref().ok_or_else(unknown)?;
        let found = container_plan::find(pod, name).ok_or_else(unknown)?;
        let as_container = launch::command(self, pod, &found);
        let unasked = |error| ActionError::Unasked { what: what(), source: Some(Box::new(error)) };
        let mut command = ExecCommand { argv: argv.to_vec(), ..as_container.map_err(unasked)? };
        command.env.extend(self.termination_notices.variables(&state));
        Ok((pod.clone(), command))
    }

    /// Must be called inside a tokio runtime.
    pub(crate) fn new(
        config: ProcessConfig,
        boot_id: String,
        alive: watch::Receiver<()>,
        driver: D,
    ) -> Self {
        Self {
            pods: Pods::default(),
            starts: Semaphore::new(config.parallel_starts.max(1)),
            notes: Notes::start(),
            termination_notices: TerminationNotices::start(
                config.notice_dir.clone(),
                config.wall.clone(),
            ),
            config,
            alive,
            boot_id,
            driver,
        }
    }
}
