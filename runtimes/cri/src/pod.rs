//! The in-memory state of a pod that only this runtime has.

use std::path::PathBuf;
use std::sync::Arc;

use winddown_engine::container_plan::{self, ContainerRule};
use winddown_engine::failure::blocking_on;
use winddown_engine::pod::{self, RunScope};
use winddown_engine::stats::CgroupDirs;
use winddown_host::PodFiles;
use winddown_shared::{Pod, RuntimeError, UnsupportedField};

use super::direct::{Direct, HeldMounts};

pub(crate) use winddown_engine::pod::{ended, stopping, title};

pub(crate) type PodEntry = pod::PodEntry<InSandbox>;
pub(crate) type PodState = pod::EnginePodState<InSandbox>;
pub(crate) type Container = pod::Container<InSandbox>;
pub(crate) type Run = pod::Run<InSandbox>;
pub(crate) type Starting = pod::StartInProgress<InSandbox>;

/// Makes files for the start of a pod, unless that is asked to stop: pods whose volumes hang may hold all threads for that,
/// and a stop waits for the start. `None` if it is.
pub(crate) async fn make_files<T: Send + 'static>(
    entry: &PodEntry,
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<Option<T>, RuntimeError> {
    tokio::select! {
        made = blocking_on(PodFiles::Make, work) => made.map(Some),
        () = pod::stopping(entry) => Ok(None),
    }
}

/// The boundary of a pod's containers: its sandbox.
#[derive(Debug, Default)]
pub(crate) struct InSandbox;

/// What is known of a pod in addition to the engine's state.
#[derive(Debug, Default)]
pub(crate) struct Sandboxes {
    pub(crate) all: Vec<Sandbox>,
    /// Whether the runtime has reported that the newest one is on the host's network: its pod may not be known.
    pub(crate) is_on_host_network: bool,
    /// The ID of the sandbox that this agent made when others had nothing of the pod: nor have they in it.
    pub(crate) alone: Option<Arc<str>>,
    /// Whether a call that creates something was not answered, so that only a listing shows what exists.
    pub(crate) unsure: bool,
    /// Held while the runtime is asked about listed runs, because until it answers they do not count as running.
    pub(crate) asking: Arc<tokio::sync::Mutex<()>>,
    pub(crate) ignored: Vec<UnsupportedField>,
    /// Whether the pod's directories and volumes are in place.
    pub(crate) prepared: bool,
    /// Whether the pod's cgroup was there when its weight was last set.
    pub(crate) weighed: bool,
    /// Older runs that have not exited although there is a newer run of the same name.
    pub(crate) strays: Vec<Arc<str>>,
    /// The pod's cgroups, if the pod is known without the runtime, which does not answer.
    pub(crate) offline_cgroups: Option<Vec<PathBuf>>,
}

/// A sandbox of the pod. Only the one with the highest attempt is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
    /// The runtime's handler that runs it; empty for the default one.
    pub(crate) handler: Arc<str>,
    pub(crate) ready: bool,
    /// Whether this agent has stopped it, which releases its network. One that is not ready may still hold it.
    pub(crate) stopped: bool,
}

/// A dead run that the runtime still holds something of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
    /// The ID of the sandbox that it is in.
    pub(crate) sandbox: Arc<str>,
}

/// What is known of a run in addition to the engine's state.
#[derive(Debug, Default)]
pub(crate) struct RunDetails {
    /// The ID of the sandbox that the run is in.
    pub(crate) sandbox: Arc<str>,
    /// Whether the runtime reported to this agent that it could not start the run.
    pub(crate) refused: bool,
    /// Whether the exit was reported by the kernel, and the runtime, which may know more, has not reported it yet.
    pub(crate) early: bool,
    /// Whether the runtime is being asked how the run ended.
    pub(crate) settling: bool,
    /// Whether a task waits for the run's process to exit.
    pub(crate) watched: bool,
    /// The PID of the first process, if the runtime reports it.
    pub(crate) pid: Option<i32>,
    /// The control group, if the kernel shows it.
    pub(crate) cgroup: Option<Box<CgroupDirs>>,
    /// The first process, if it may be signalled without the runtime.
    pub(crate) direct: Option<Arc<Direct>>,
    /// The mount namespace, held from the request to stop until the pod is cleaned up.
    pub(crate) mounts: Option<HeldMounts>,
    /// Whether the runtime was asked to remove it, because the pod has terminated and disk space was short.
    pub(crate) reclaimed: bool,
}

impl RunScope for InSandbox {
    type Pod = Sandboxes;
    /// Dead runs before the newest run, newest first; all but the first are garbage.
    type Container = Vec<Dead>;
    type Run = RunDetails;

    fn is_past(pod: &Sandboxes, run: &RunDetails) -> bool {
        pod.sandbox().is_none_or(|sandbox| sandbox.id != run.sandbox)
    }

    fn rules(pod: &Pod) -> Vec<ContainerRule> {
        let mut rules = container_plan::rules(pod);
        rules.extend(container_plan::ephemeral_rules(pod));
        rules
    }

    fn has_more(pod: &Sandboxes) -> bool {
        !pod.strays.is_empty()
    }
}

/// A run of a container that was created and not started.
pub(crate) fn created(id: &str, attempt: u32, sandbox: &str, backoff: std::time::Duration) -> Run {
    Run::new(id, attempt, backoff, RunDetails { sandbox: sandbox.into(), ..RunDetails::default() })
}

/// Makes `run` the container's newest one.
pub(crate) fn begin(container: &mut Container, run: Run) {
    if let Some(old) = container.begin(run) {
        container.own.insert(0, as_dead(&old));
    }
}

/// The run as one that is to be removed.
pub(crate) fn as_dead(run: &Run) -> Dead {
    let (id, sandbox) = (Arc::clone(&run.id), Arc::clone(&run.own.sandbox));
    Dead { id, attempt: run.attempt, sandbox }
}

/// Whether the runtime has reported how the run ended.
pub(crate) fn is_settled(run: &Run) -> bool {
    run.end.is_some() && !run.own.early
}

/// Resolves when the runtime has reported how this run ended. Cancel-safe.
pub(crate) async fn settled(entry: &PodEntry, name: &str, id: &str) {
    let is_over = |run: Option<&mut Run>| run.is_none_or(|run| is_settled(run));
    entry.wait_for(|state| is_over(state.run(name, id)).then_some(())).await;
}

/// Whether anything of the pod was ever started.
pub(crate) fn has_started(state: &PodState) -> bool {
    let ran = |c: &Container| c.run.is_some() || !c.own.is_empty();
    !state.own.all.is_empty() || state.containers.iter().any(ran)
}

// === impl Sandboxes ===

impl Sandboxes {
    /// The newest sandbox, if it is ready.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.all.iter().max_by_key(|s| s.attempt).filter(|s| s.ready)
    }

    pub(crate) fn handler_of(&self, id: &str) -> Option<Arc<str>> {
        self.all.iter().find(|s| *s.id == *id).map(|s| Arc::clone(&s.handler))
    }
}
