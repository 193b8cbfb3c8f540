//! What only this runtime knows of a pod, in memory.

use std::path::PathBuf;
use std::sync::Arc;

use winddown_engine::plan::{self, ContainerRule};
use winddown_engine::pod::{self, Boundary};
use winddown_shared::{Pod, UnsupportedField};

use super::direct::{Direct, HeldMounts};

pub(crate) use winddown_engine::pod::{ended, stopping, title};

pub(crate) type PodEntry = pod::PodEntry<InSandbox>;
pub(crate) type PodState = pod::PodState<InSandbox>;
pub(crate) type Container = pod::Container<InSandbox>;
pub(crate) type Run = pod::Run<InSandbox>;
pub(crate) type Starting = pod::Starting<InSandbox>;

/// The sandbox of a pod, which its containers run in.
#[derive(Debug, Default)]
pub(crate) struct InSandbox;

/// What is known of a pod.
#[derive(Debug, Default)]
pub(crate) struct Sandboxes {
    pub(crate) all: Vec<Sandbox>,
    /// A call that makes something was not answered: only a listing tells what there is.
    pub(crate) unsure: bool,
    /// Held while the runtime is asked about the runs that a listing has: until then nothing says that they run.
    pub(crate) asking: Arc<tokio::sync::Mutex<()>>,
    /// What it asks for and goes on without.
    pub(crate) ignored: Vec<UnsupportedField>,
    /// Its directories and volumes are in place.
    pub(crate) prepared: bool,
    /// Held while its volumes are made or removed.
    pub(crate) volumes: Arc<tokio::sync::Mutex<()>>,
    /// Containers that run beside the newest run of the same name, or of an unknown name.
    pub(crate) strays: Vec<Arc<str>>,
    /// It is known without the runtime, which is silent: its control groups.
    pub(crate) alone: Option<Vec<PathBuf>>,
}

/// A sandbox of the pod. Only the one with the highest attempt is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
}

/// A run that is over and of which the runtime still holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
}

/// What is known of a run.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The sandbox it is in.
    pub(crate) sandbox: Arc<str>,
    /// The runtime could not start it, and told this agent so.
    pub(crate) refused: bool,
    /// How it ended the kernel told; the runtime, which may know more, has not yet.
    pub(crate) early: bool,
    /// The runtime is being asked how it ended.
    pub(crate) settling: bool,
    /// A task waits for its process to end.
    pub(crate) watched: bool,
    /// The number of its first process, where the runtime tells it.
    pub(crate) pid: Option<i32>,
    /// Its first process, where it may be signalled without the runtime.
    pub(crate) direct: Option<Arc<Direct>>,
    /// Its mount namespace, from when it was asked to end until its pod is cleaned up.
    pub(crate) mounts: Option<HeldMounts>,
    /// The runtime was asked to forget it, because its pod is over and its disk was short.
    pub(crate) given_back: bool,
}

impl Boundary for InSandbox {
    type Pod = Sandboxes;
    /// Dead runs before the newest one, newest first; all but the first are garbage.
    type Container = Vec<Dead>;
    type Run = Held;

    fn is_past(pod: &Sandboxes, run: &Held) -> bool {
        pod.sandbox().is_none_or(|sandbox| sandbox.id != run.sandbox)
    }

    fn rules(pod: &Pod) -> Vec<ContainerRule> {
        let mut rules = plan::rules(pod);
        rules.extend(plan::ephemeral_rules(pod));
        rules
    }

    fn has_more(pod: &Sandboxes) -> bool {
        !pod.strays.is_empty()
    }
}

/// A container that was created and not started.
pub(crate) fn created(id: &str, attempt: u32, sandbox: &str, backoff: std::time::Duration) -> Run {
    Run::new(id, attempt, backoff, Held { sandbox: sandbox.into(), ..Held::default() })
}

/// Makes `run` the container's newest one.
pub(crate) fn begin(container: &mut Container, run: Run) {
    if let Some(old) = container.begin(run) {
        container.own.insert(0, Dead { id: old.id, attempt: old.attempt });
    }
}

/// Whether the runtime has said how it ended.
pub(crate) fn is_settled(run: &Run) -> bool {
    run.end.is_some() && !run.own.early
}

/// Resolves when the runtime has said how this run ended. Cancel-safe.
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
}
