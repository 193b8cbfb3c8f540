//! Runs programs of the host as containers: the pass over a pod, starts, probes, hooks, endings, adoption and
//! figures. How a program is run and ended a [`ProgramDriver`] knows: [`process`](crate::process) supervises it,
//! [`systemd`](crate::systemd) has the service manager do so.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use winddown_engine::NodeFacts;
use winddown_engine::action::ActionError;
use winddown_engine::disk_notes::Notes;
use winddown_engine::driver::Driver;
use winddown_engine::driver::Target;
use winddown_engine::end_notices::EndNotices;
use winddown_engine::plan;
use winddown_engine::pods::Pods;
use winddown_engine::stats::DiskCache;
use winddown_shared::{Grace, Happening, Pod, PodUid, RuntimeError, UnsupportedField};
use winddown_shim::order::Command;

pub(crate) mod adopt;
pub(crate) mod config;
pub(crate) mod draft;
mod end;
pub(crate) mod exits;
pub(crate) mod launch;
pub(crate) mod open;
pub(crate) mod paths;
pub(crate) mod pod;
pub(crate) mod pod_record;
mod runtime;
pub(crate) mod stats;
mod streams;
pub(crate) mod support;

use config::ProcessConfig;
pub(crate) use winddown_engine::failure::{blocking, caused, failed};

use pod::{Boot, PodEntry, PodState, Run, Starting};
use stats::Traces;
pub(crate) use streams::Output;

/// Runs pods as programs of the host, in the way of `D`.
///
/// Dropping it stops nothing: the containers go on, and the next one that is opened finds them.
#[derive(Debug)]
pub struct ProgramRuntime<D> {
    pub(crate) context: Arc<Context<D>>,
    disk: DiskCache,
    /// Held for as long as this agent uses the state directory.
    _lock: File,
    /// Its end tells the watching tasks that the runtime is gone.
    _alive: watch::Sender<()>,
}

/// What every part of the runtime needs.
#[derive(Debug)]
pub(crate) struct Context<D> {
    pub(crate) config: ProcessConfig,
    pub(crate) pods: Pods<Boot>,
    pub(crate) starts: Semaphore,
    pub(crate) alive: watch::Receiver<()>,
    pub(crate) boot_id: String,
    /// Which attempts were asked to end.
    pub(crate) asked: Notes,
    pub(crate) end_notices: EndNotices,
    pub(crate) driver: D,
}

/// A way to run programs of the host as containers. Each call can fail or be late; all are bounded.
///
/// What it does is in seven verbs: start, exec, settle, ask, kill, free, trace; the rest are facts about it. Taking
/// over what an earlier agent left is part of opening a runtime, which each driver does by itself.
pub(crate) trait ProgramDriver: Sized + Send + Sync + 'static {
    /// Of the ids of its containers.
    const SCHEME: &'static str;

    /// Everything of a pod that it cannot honour.
    fn unsupported(&self, pod: &Pod) -> Vec<UnsupportedField>;

    /// Starts the attempt `number` of the pod's container `name`, and watches it from then on; `backoff` is what
    /// was waited before it. Resolves when it runs; with an error if the pod is being stopped.
    ///
    /// # Errors
    /// It could not be started, or that it was is not known.
    fn start(
        context: &Arc<Context<Self>>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
        next: (u32, Duration),
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Runs a command beside the pod's container, and resolves with its exit code. Dropping the future ends it and
    /// whatever it forked; `limit` is when that will be at the latest.
    ///
    /// # Errors
    /// The command could not be run.
    fn exec(
        context: &Arc<Context<Self>>,
        beside: (&Pod, &str),
        command: Command,
        output: Output,
        limit: Duration,
    ) -> impl Future<Output = Result<i32, ActionError>> + Send;

    /// Resolves when no start of the pod is under way and everything that runs of it is known.
    ///
    /// # Errors
    /// A start does not come to an end, or what runs is not known.
    fn settle(
        context: &Arc<Context<Self>>,
        entry: &Arc<PodEntry>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Sends a container's main process the signal that asks it to end. One that cannot be asked will be killed.
    fn ask(
        context: &Arc<Context<Self>>,
        entry: &Arc<PodEntry>,
        target: &Target,
    ) -> impl Future<Output = ()> + Send;

    /// Kills all of a container. It is called again, with `round` one higher, if that was to no avail.
    fn kill(
        context: &Arc<Context<Self>>,
        entry: &Arc<PodEntry>,
        target: &Target,
        round: u32,
    ) -> impl Future<Output = ()> + Send;

    /// Why a container that was killed still runs, as far as that is known.
    fn survives(
        context: &Arc<Context<Self>>,
        entry: &Arc<PodEntry>,
        target: &Target,
    ) -> impl Future<Output = RuntimeError> + Send;

    /// Ends and removes what is left of a pod that was stopped, but for its records. May be repeated.
    ///
    /// # Errors
    /// Something is still there.
    fn free(
        context: &Arc<Context<Self>>,
        uid: &PodUid,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Where it is seen what a run uses.
    fn traces(&self, uid: &PodUid, container: &str, run: &Run) -> Traces;

    /// Where all pods' memory is counted, from the root of its hierarchy; none without cgroups.
    fn pods_cgroup(&self) -> Option<String>;
}

// === impl ProgramRuntime ===

impl<D> ProgramRuntime<D> {
    /// `alive` is the other end of the context's.
    pub(crate) fn assemble(context: Arc<Context<D>>, lock: File, alive: watch::Sender<()>) -> Self {
        Self { context, disk: DiskCache::default(), _lock: lock, _alive: alive }
    }
}

// === impl Context ===

impl<D: ProgramDriver> Driver for Context<D> {
    type Boundary = Boot;

    fn pods(&self) -> &Pods<Boot> {
        &self.pods
    }

    fn alive(&self) -> watch::Receiver<()> {
        self.alive.clone()
    }

    fn end_notices(&self) -> &EndNotices {
        &self.end_notices
    }

    fn node(&self, _: &PodState) -> NodeFacts {
        self.config.node.clone()
    }

    async fn exec(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        (name, _): (&str, &str),
        argv: &[String],
        limit: Duration,
    ) -> Result<(), ActionError> {
        let (pod, command) = self.beside(entry, name, argv)?;
        let run = D::exec(self, (&pod, name), command, Output::default(), limit);
        match timeout(limit, run).await.map_err(|_| ActionError::Timeout)?? {
            0 => Ok(()),
            code => {
                let how = format!("exit code {code}");
                Err(ActionError::Failed { command: argv.join(" "), how, output: String::new() })
            }
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
        self.pods.tell(&entry, Some(name), Happening::Created);
        Ok(entry.lock().attempt(name, next.0).map(|run| Arc::clone(&run.id)))
    }

    async fn settle(self: &Arc<Self>, entry: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        D::settle(self, entry).await
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: &Target,
        grace: Grace,
    ) -> Result<(), RuntimeError> {
        end::end(self, entry, target, grace).await
    }
}

impl<D> Context<D> {
    /// A command as the container would run it, and the pod.
    ///
    /// # Errors
    /// There is no such container any more, or its environment is not known.
    fn beside(
        &self,
        entry: &PodEntry,
        name: &str,
        argv: &[String],
    ) -> Result<(Pod, Command), ActionError> {
        let state = entry.lock();
        let what = || format!("cannot run {}", argv.join(" "));
        let unknown = || ActionError::Unasked { what: what(), source: None };
        let pod = state.pod.as_ref().ok_or_else(unknown)?;
        let found = plan::find(pod, name).ok_or_else(unknown)?;
        let as_container = launch::command(self, pod, &found);
        let unasked = |error| ActionError::Unasked { what: what(), source: Some(Box::new(error)) };
        let mut command = Command { argv: argv.to_vec(), ..as_container.map_err(unasked)? };
        command.env.extend(self.end_notices.variables(&state));
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
            asked: Notes::start(),
            end_notices: EndNotices::start(config.notice_dir.clone(), config.wall.clone()),
            config,
            alive,
            boot_id,
            driver,
        }
    }
}
