//! What the agent knows of one pod, in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use winddown_shared::{ContainerExit, ContainerKind, Pod, PodUid, RuntimePod, WallTime};

use crate::plan::{Backoff, ContainerRule, Restart, Seen};

/// A pod. Everyone who waits for it waits for [`changed`](Self::changed) and looks at the state.
#[derive(Debug)]
pub(crate) struct PodEntry {
    uid: PodUid,
    state: Mutex<PodState>,
    changed: watch::Sender<()>,
    changes: broadcast::Sender<PodUid>,
}

/// A pod's state. The lock is never held across an await or a system call that can wait.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    /// The pod as last handed in; none for one that was found at the runtime and that nobody has
    /// asked for yet.
    pub(crate) pod: Option<Pod>,
    /// `namespace` and `name` by the labels.
    pub(crate) label: (Arc<str>, Arc<str>),
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
    /// Its directories and volumes are in place.
    pub(crate) prepared: bool,
    pub(crate) sandboxes: Vec<Sandbox>,
    /// In the spec's order, init containers first.
    pub(crate) containers: Vec<Container>,
    /// Containers that run beside the newest run of the same name, or of an unknown name.
    pub(crate) strays: Vec<Arc<str>>,
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

/// What ran when a stop began.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopRecord {
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) signalled_at: Option<Instant>,
    pub(crate) stopped_at: Option<Instant>,
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ContainerKind,
    /// The newest run.
    pub(crate) run: Option<Run>,
    /// How the run before the newest ended.
    pub(crate) last_exit: Option<ContainerExit>,
    /// Dead runs before the newest one, newest first; all but the first are garbage.
    pub(crate) dead: Vec<Dead>,
    /// What kept it from being started, if it could not be.
    pub(crate) trouble: Option<Trouble>,
    /// What its labels say, for as long as nobody knows the pod.
    pub(crate) by_labels: Option<Box<k8s::Container>>,
}

/// A run that is over and of which the runtime still holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
}

/// One run of a container.
#[derive(Debug)]
pub(crate) struct Run {
    /// The runtime's id.
    pub(crate) id: Arc<str>,
    /// 0 for the first.
    pub(crate) attempt: u32,
    /// The sandbox it is in.
    pub(crate) sandbox: Arc<str>,
    /// When it started; none while it is only created.
    pub(crate) started_at: Option<WallTime>,
    /// The back-off to follow this run if it is short.
    pub(crate) backoff: Duration,
    /// Its postStart hook is done and its startup probe passed.
    pub(crate) started: bool,
    /// Its readiness probe passed.
    pub(crate) ready: bool,
    /// Its probes are being asked, or it has none.
    pub(crate) probed: bool,
    /// A probe or its postStart hook wants it restarted.
    pub(crate) failing: bool,
    /// It is being ended because it fails.
    pub(crate) ending: bool,
    /// Somebody is asking the runtime how it ended.
    pub(crate) settling: bool,
    /// Somebody waits for its process to end.
    pub(crate) watched: bool,
    /// When it was asked to end.
    pub(crate) signalled_at: Option<Instant>,
    /// SIGKILL was needed.
    pub(crate) forced: bool,
    pub(crate) end: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) exit: ContainerExit,
    /// How long it ran.
    pub(crate) ran: Duration,
    /// When it may be started again.
    pub(crate) restart_at: Instant,
}

/// Why a container could not be started, and when that is tried again.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// `ErrImagePull`, `CreateContainerError`, …
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) until: Instant,
    /// The wait that ends then.
    pub(crate) wait: Duration,
}

// === impl PodEntry ===

impl PodEntry {
    pub(crate) fn new(uid: PodUid, changes: broadcast::Sender<PodUid>) -> Self {
        Self { uid, state: Mutex::default(), changed: watch::Sender::new(()), changes }
    }

    pub(crate) fn uid(&self) -> &PodUid {
        &self.uid
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PodState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait within this crate.
    pub(crate) fn bump(&self) {
        self.changed.send_replace(());
    }

    /// Wakes those who wait, and tells the pod workers that something changed by itself.
    pub(crate) fn announce(&self) {
        self.bump();
        // No receiver: nobody wants to know.
        let _ = self.changes.send(self.uid.clone());
    }

    /// Resolves when `found` gives something; it is asked again after every change. Cancel-safe.
    pub(crate) async fn wait_for<T>(&self, mut found: impl FnMut(&mut PodState) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = found(&mut self.lock()) {
                return found;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves when this run of the container has ended. Cancel-safe.
    pub(crate) async fn ended(&self, name: &str, id: &str) {
        self.wait_for(|state| match state.run(name, id) {
            Some(run) if run.end.is_none() => None,
            _ => Some(()),
        })
        .await;
    }

    /// Resolves when the pod is asked to stop. Cancel-safe.
    pub(crate) async fn stopping(&self) {
        self.wait_for(|state| state.stopping.then_some(())).await;
    }
}

// === impl PodState ===

impl PodState {
    /// Takes the pod as it is now, and makes room for its containers in the spec's order.
    pub(crate) fn take_pod(&mut self, pod: &Pod) {
        if self.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
            return;
        }
        let rules = crate::plan::rules(pod);
        let mut known = std::mem::take(&mut self.containers);
        for rule in rules {
            let old = known.iter().position(|c| c.name == rule.name).map(|i| known.remove(i));
            let fresh = || Container::new(rule.name.clone(), rule.kind);
            let mut container = old.unwrap_or_else(fresh);
            container.kind = rule.kind;
            container.by_labels = None;
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

    /// The pod for a listing.
    pub(crate) fn summary(&self, uid: &PodUid) -> RuntimePod {
        RuntimePod {
            uid: uid.clone(),
            name: self.label.1.clone(),
            namespace: self.label.0.clone(),
            running: self.any_running(),
        }
    }

    /// The newest sandbox, if it is ready.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.iter().max_by_key(|s| s.attempt).filter(|s| s.ready)
    }

    /// What each container does, for the plan. One that ended with a former sandbox counts as never
    /// started, unless it ended for good.
    pub(crate) fn seen(&self, rules: &[ContainerRule], now: Instant) -> Vec<Seen> {
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

// === impl Container ===

impl Container {
    pub(crate) fn new(name: Arc<str>, kind: ContainerKind) -> Self {
        Self {
            name,
            kind,
            run: None,
            last_exit: None,
            dead: Vec::new(),
            trouble: None,
            by_labels: None,
        }
    }

    /// It runs, or it is created and could.
    pub(crate) fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_running)
    }

    /// It runs since an earlier agent, and nobody asks its probes yet.
    pub(crate) fn is_adopted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_running() && run.started && !run.probed)
    }

    /// The number of the next attempt, and the back-off to follow it.
    pub(crate) fn next(&self, backoff: &Backoff) -> (u32, Duration) {
        let newest_dead = self.dead.iter().map(|d| d.attempt).max();
        let attempt = self.run.as_ref().map(|run| run.attempt).max(newest_dead);
        let waited = self.run.as_ref().and_then(|run| {
            let end = run.end.as_ref()?;
            Some(backoff.after(run.backoff, end.ran))
        });
        let follow = match waited {
            Some(waited) => backoff.next(waited),
            None => Duration::ZERO,
        };
        (attempt.map_or(0, |n| n.saturating_add(1)), follow)
    }

    /// Makes `run` the newest one.
    pub(crate) fn begin(&mut self, run: Run) {
        self.trouble = None;
        if let Some(old) = self.run.replace(run) {
            self.last_exit = old.end.map(|end| end.exit);
            self.dead.insert(0, Dead { id: old.id, attempt: old.attempt });
        }
    }

    /// Notes that it could not be started.
    pub(crate) fn fail(&mut self, reason: &'static str, message: String, retry: &Backoff) {
        let waited = self.trouble.as_ref().map_or(Duration::ZERO, |t| t.wait);
        let wait = retry.next(waited);
        self.trouble = Some(Trouble { reason, message, until: Instant::now() + wait, wait });
    }

    fn seen(&self, rule: &ContainerRule, sandbox: Option<&Arc<str>>, now: Instant) -> Seen {
        let Some(run) = &self.run else { return Seen::Never };
        let Some(end) = &run.end else {
            if run.started_at.is_none() {
                return Seen::Never;
            }
            return Seen::Running { started: run.started, failing: run.failing };
        };
        let is_here = sandbox == Some(&run.sandbox);
        if !is_here && !is_for_good(rule, end.exit.exit_code) {
            return Seen::Never;
        }
        Seen::Ended {
            exit_code: end.exit.exit_code,
            wait: end.restart_at.saturating_duration_since(now),
        }
    }
}

/// Whether a container that ended like this stays so when its pod gets a new sandbox.
fn is_for_good(rule: &ContainerRule, exit_code: i32) -> bool {
    match rule.kind {
        ContainerKind::Regular => !rule.restart.applies_to(exit_code),
        // An init container's work may have been lost with the sandbox; one that failed the pod has.
        ContainerKind::Init => rule.restart == Restart::Never && exit_code != 0,
        ContainerKind::Sidecar => false,
    }
}

// === impl Run ===

impl Run {
    /// A container that was created and not started.
    pub(crate) fn created(id: &str, attempt: u32, sandbox: &str, backoff: Duration) -> Self {
        Self {
            id: id.into(),
            attempt,
            sandbox: sandbox.into(),
            started_at: None,
            backoff,
            started: false,
            ready: false,
            probed: false,
            failing: false,
            ending: false,
            settling: false,
            watched: false,
            signalled_at: None,
            forced: false,
            end: None,
        }
    }

    /// Whether it runs or could: one that is only created holds nothing but its place.
    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none() && self.started_at.is_some()
    }
}
