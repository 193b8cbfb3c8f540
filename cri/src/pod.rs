//! What the agent knows of one pod, in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_engine::entry::Entry;
use winddown_engine::plan::{ContainerObservation, ContainerRule};
use winddown_engine::stopping::StopRecord;
use winddown_shared::{Pod, PodUid, RuntimePod, UnsupportedField, WallTime};

mod container;

pub(crate) use container::{Container, Dead, End, Run, Trouble};

/// A pod.
pub(crate) type PodEntry = Entry<PodState>;

/// A pod's state. The lock is never held across an await or a system call that can wait.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    /// The pod as last handed in; none for one that was found at the runtime and has not been
    /// asked for yet.
    pub(crate) pod: Option<Pod>,
    /// `namespace` and `name` by the labels.
    pub(crate) label: (Arc<str>, Arc<str>),
    /// Its own grace by the labels of its containers.
    pub(crate) grace: Option<Duration>,
    /// When the first sandbox of the pod was made.
    pub(crate) started_at: Option<WallTime>,
    pub(crate) ips: Vec<String>,
    /// It is being stopped, or was: nothing may be started.
    pub(crate) stopping: bool,
    /// Starts under way. A stop waits for them: it could not end what it does not see yet.
    pub(crate) starting: usize,
    /// How many starts were ever begun: tells whether a listing may be older than what is known.
    pub(crate) starts_begun: u64,
    /// A call that makes something was not answered: only a listing tells what there is.
    pub(crate) unsure: bool,
    /// What it asks for and goes on without.
    pub(crate) ignored: Vec<UnsupportedField>,
    /// Its directories and volumes are in place.
    pub(crate) prepared: bool,
    /// Held while its volumes are made or removed.
    pub(crate) volumes: Arc<tokio::sync::Mutex<()>>,
    pub(crate) sandboxes: Vec<Sandbox>,
    /// In the spec's order, init containers first.
    pub(crate) containers: Vec<Container>,
    /// Containers that run beside the newest run of the same name, or of an unknown name.
    pub(crate) strays: Vec<Arc<str>>,
    /// It is known without the runtime, which is silent: its control groups.
    pub(crate) alone: Option<Vec<PathBuf>>,
    /// What ran when the stop began; kept so that a second stop tells the same.
    pub(crate) stop: Option<StopRecord>,
}

/// A sandbox of the pod. Only the one with the highest attempt is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
}

/// `namespace/name`, or the UID of a pod whose name is not known yet. Takes the lock.
pub(crate) fn title(entry: &PodEntry) -> String {
    let (namespace, name) = entry.lock().label.clone();
    if name.is_empty() { entry.uid().to_string() } else { format!("{namespace}/{name}") }
}

/// Resolves when this run of the container has ended. Cancel-safe.
pub(crate) async fn ended(entry: &PodEntry, name: &str, id: &str) {
    entry
        .wait_for(|state| match state.run(name, id) {
            Some(run) if run.end.is_none() => None,
            _ => Some(()),
        })
        .await;
}

/// Resolves when the runtime has said how this run ended. Cancel-safe.
pub(crate) async fn settled(entry: &PodEntry, name: &str, id: &str) {
    entry
        .wait_for(|state| match state.run(name, id) {
            Some(run) if !run.is_settled() => None,
            _ => Some(()),
        })
        .await;
}

/// Resolves when the pod is asked to stop. Cancel-safe.
pub(crate) async fn stopping(entry: &PodEntry) {
    entry.wait_for(|state| state.stopping.then_some(())).await;
}

// === impl PodState ===

impl PodState {
    /// Takes the pod as it is now, and makes room for its containers in the spec's order.
    pub(crate) fn take_pod(&mut self, pod: &Pod) {
        if self.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
            return;
        }
        let rules = winddown_engine::plan::rules(pod);
        let mut known = std::mem::take(&mut self.containers);
        for rule in rules {
            let old = known.iter().position(|c| c.name == rule.name).map(|i| known.remove(i));
            let fresh = || Container::new(rule.name.clone(), rule.kind);
            let mut container = old.unwrap_or_else(fresh);
            container.kind = rule.kind;
            container.by_labels = None;
            let image = crate::spec::find(pod, &rule.name).and_then(|f| f.container.image.clone());
            container.wanted_image = image.map(Into::into);
            self.containers.push(container);
        }
        // Containers the spec no longer has may still run.
        self.containers.append(&mut known);
        self.label = (pod.namespace().clone(), pod.name().clone());
        self.pod = Some(pod.clone());
    }

    pub(crate) fn container(&mut self, name: &str) -> Option<&mut Container> {
        self.containers.iter_mut().find(|c| &*c.name == name)
    }

    pub(crate) fn run(&mut self, name: &str, id: &str) -> Option<&mut Run> {
        self.container(name)?.run.as_mut().filter(|r| &*r.id == id)
    }

    /// Nothing is being started, nor was since `starts` starts had begun.
    pub(crate) fn is_quiet_since(&self, starts: u64) -> bool {
        self.starting == 0 && self.starts_begun == starts
    }

    pub(crate) fn any_running(&self) -> bool {
        self.starting > 0
            || !self.strays.is_empty()
            || self.containers.iter().any(Container::is_running)
    }

    /// Whether anything of the pod was ever started.
    pub(crate) fn has_started(&self) -> bool {
        !self.sandboxes.is_empty()
            || self.containers.iter().any(|c| c.run.is_some() || !c.dead.is_empty())
    }

    /// The pod for a listing.
    pub(crate) fn summary(&self, uid: &PodUid) -> RuntimePod {
        RuntimePod {
            uid: uid.clone(),
            name: self.label.1.clone(),
            namespace: self.label.0.clone(),
            running: self.any_running(),
            grace: self.pod.as_ref().map_or(self.grace, Pod::own_grace),
        }
    }

    /// The newest sandbox, if it is ready.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.iter().max_by_key(|s| s.attempt).filter(|s| s.ready)
    }

    /// What each container does, for the plan. One that ended with a former sandbox counts as never
    /// started, unless it ended for good.
    pub(crate) fn seen(&self, rules: &[ContainerRule], now: Instant) -> Vec<ContainerObservation> {
        let sandbox = self.sandbox().map(|s| &s.id);
        let each = rules.iter().zip(&self.containers);
        each.map(|(rule, container)| container.seen(rule, sandbox, now)).collect()
    }

    /// When something that could not be started is tried again, if it is too early now.
    pub(crate) fn trouble_until(&self, place: usize, now: Instant) -> Option<Duration> {
        let trouble = self.containers.get(place)?.trouble.as_ref()?;
        let left = trouble.until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}
