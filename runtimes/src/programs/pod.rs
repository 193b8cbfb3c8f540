//! What the runtime knows of one pod, in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_engine::entry::Entry;
use winddown_engine::plan::{ContainerObservation, ContainerRule};
use winddown_engine::probing::ProbeState;
use winddown_engine::stopping::StopRecord;
use winddown_shared::{ContainerExit, ContainerKind, Pod, PodUid, RuntimePod, WallTime};
use winddown_shim::procfs::Process;

use super::config::ProcessConfig;
use super::launch;
use super::paths;
use super::pod_record;

/// A pod.
pub(crate) type PodEntry = Entry<PodState>;

/// A pod's state. The lock is never held across an await or a system call that can wait.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    /// The pod as last handed in, or as its record has it.
    pub(crate) pod: Option<Pod>,
    /// When the first container of the pod started.
    pub(crate) started_at: Option<WallTime>,
    /// It is being stopped, or was: nothing may be started.
    pub(crate) stopping: bool,
    /// Starts under way. A stop waits for them: it could not end what it does not see yet.
    pub(crate) starting: usize,
    /// Supervisors that have not said yet that their container started.
    pub(crate) launching: Vec<Arc<Process>>,
    /// In the spec's order, init containers first.
    pub(crate) containers: Vec<Container>,
    /// What ran when the stop began; kept so that a second stop tells the same.
    pub(crate) stop: Option<StopRecord>,
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
}

/// One run of a container.
#[derive(Debug)]
pub(crate) struct Run {
    /// 0 for the first.
    pub(crate) attempt: u32,
    pub(crate) started_at: WallTime,
    /// The back-off to follow this run if it is short.
    pub(crate) backoff: Duration,
    /// None once it was gone when the agent looked.
    pub(crate) supervisor: Option<Arc<Process>>,
    /// The container's process 1, unless it was gone when the agent looked.
    pub(crate) main: Option<Arc<Process>>,
    /// One in each hierarchy; none where there is none.
    pub(crate) cgroups: Vec<PathBuf>,
    /// What its postStart hook and its probes have come to.
    pub(crate) probe_state: ProbeState,
    /// The machine was booted since: the pod begins anew.
    pub(crate) is_of_earlier_boot: bool,
    /// It is being ended because it fails.
    pub(crate) ending: bool,
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
    /// The agent had asked for it, so it says nothing against the container: it is no crash.
    pub(crate) asked: bool,
    /// When it may be started again.
    pub(crate) restart_at: Instant,
}

/// Resolves when this run of the container has ended. Cancel-safe.
pub(crate) async fn ended(entry: &PodEntry, name: &str, attempt: u32) {
    entry
        .wait_for(|state| match state.run(name, attempt) {
            Some(run) if run.end.is_none() => None,
            _ => Some(()),
        })
        .await;
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
            let old = known.iter().position(|c| c.name == rule.name).map(|i| known.swap_remove(i));
            let fresh = || Container::new(rule.name.clone(), rule.kind);
            let mut container = old.unwrap_or_else(fresh);
            container.kind = rule.kind;
            self.containers.push(container);
        }
        // Containers the spec no longer has may still run.
        self.containers.append(&mut known);
        self.pod = Some(pod.clone());
    }

    pub(crate) fn container(&mut self, name: &str) -> Option<&mut Container> {
        self.containers.iter_mut().find(|c| &*c.name == name)
    }

    pub(crate) fn run(&mut self, name: &str, attempt: u32) -> Option<&mut Run> {
        self.container(name)?.run.as_mut().filter(|r| r.attempt == attempt)
    }

    pub(crate) fn any_running(&self) -> bool {
        self.starting > 0 || self.containers.iter().any(Container::is_running)
    }

    /// Whether any container was started in this boot.
    pub(crate) fn has_started(&self) -> bool {
        let mut runs = self.containers.iter().filter_map(|container| container.run.as_ref());
        runs.any(|run| !run.is_of_earlier_boot)
    }

    /// The pod for a listing. One whose record is damaged has no name.
    pub(crate) fn summary(&self, uid: &PodUid) -> RuntimePod {
        let named = self.pod.as_ref().map(|p| (p.name().clone(), p.namespace().clone()));
        let (name, namespace) = named.unwrap_or_else(|| ("".into(), "".into()));
        let grace = self.pod.as_ref().and_then(Pod::own_grace);
        RuntimePod { uid: uid.clone(), name, namespace, running: self.any_running(), grace }
    }

    /// The directories to remove with the pod; none while it runs.
    pub(crate) fn places(&self, config: &ProcessConfig, uid: &PodUid) -> Option<Vec<PathBuf>> {
        if self.any_running() {
            return None;
        }
        let logs = self.pod.as_ref().map(|p| paths::logs(config, p.namespace(), p.name(), uid));
        // Records last: while they are there, what is left of the pod can be found.
        let whole = pod_record::whole_path(config, uid);
        Some(logs.into_iter().chain(whole).chain([paths::pod(config, uid)]).collect())
    }

    /// What the containers of these rules, which come first and in their order, do, for the plan.
    pub(crate) fn seen(&self, rules: &[ContainerRule], now: Instant) -> Vec<ContainerObservation> {
        let containers = self.containers.iter().zip(rules);
        containers.map(|(container, rule)| container.seen(rule, now)).collect()
    }
}

/// Enters a run as the newest of its container.
pub(crate) fn enter(entry: &PodEntry, name: &str, run: Run) {
    let mut state = entry.lock();
    state.started_at.get_or_insert(run.started_at);
    let Some(container) = state.container(name) else { return };
    if let Some(old) = container.run.replace(run) {
        container.last_exit = old.end.map(|end| end.exit).or(container.last_exit.take());
    }
}

// === impl Container ===

impl Container {
    pub(crate) fn new(name: Arc<str>, kind: ContainerKind) -> Self {
        Self { name, kind, run: None, last_exit: None }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.end.is_none())
    }

    /// It was started by an earlier agent and has no prober yet.
    pub(crate) fn is_adopted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.end.is_none() && run.probe_state.is_adopted())
    }

    /// The number of the next attempt, the wait that precedes it, and the back-off to follow it.
    pub(crate) fn next(&self, backoff: &winddown_engine::plan::Backoff) -> (u32, Duration) {
        let Some(run) = &self.run else { return (0, Duration::ZERO) };
        // A boot is no crash of the container.
        if run.is_of_earlier_boot || run.end.as_ref().is_some_and(|end| end.asked) {
            return (run.attempt.saturating_add(1), Duration::ZERO);
        }
        let waited =
            run.end.as_ref().map_or(Duration::ZERO, |end| backoff.after(run.backoff, end.ran));
        (run.attempt.saturating_add(1), backoff.next(waited))
    }

    fn seen(&self, rule: &ContainerRule, now: Instant) -> ContainerObservation {
        let Some(run) = &self.run else { return ContainerObservation::Never };
        let Some(end) = &run.end else { return run.probe_state.seen() };
        let exit_code = end.exit.exit_code;
        if run.is_of_earlier_boot {
            // What init containers and sidecars did went with the machine's memory.
            let is_for_good = rule.is_for_good(exit_code);
            return if is_for_good {
                ContainerObservation::Done { exit_code }
            } else {
                ContainerObservation::Never
            };
        }
        ContainerObservation::Ended {
            exit_code,
            wait: end.restart_at.saturating_duration_since(now),
        }
    }
}

// === impl Run ===

impl Run {
    /// One that has just been started, or is just found to run.
    pub(crate) fn new(attempt: u32, started_at: WallTime, backoff: Duration) -> Self {
        Self {
            attempt,
            started_at,
            backoff,
            supervisor: None,
            main: None,
            cgroups: Vec::new(),
            probe_state: ProbeState::default(),
            is_of_earlier_boot: false,
            ending: false,
            signalled_at: None,
            forced: false,
            end: None,
        }
    }

    /// One that an earlier agent started. When exactly it was asked to end is not known any more, but whether it
    /// was: it is not asked twice.
    pub(crate) fn adopted(
        attempt: u32,
        started_at: WallTime,
        backoff: Duration,
        asked: bool,
    ) -> Self {
        Self {
            probe_state: ProbeState::ADOPTED,
            signalled_at: asked.then(Instant::now),
            ..Self::new(attempt, started_at, backoff)
        }
    }
}

/// Keeps count of one start under way.
#[derive(Debug)]
pub(crate) struct Starting(Arc<PodEntry>);

impl Starting {
    /// None if the pod is being stopped.
    pub(crate) fn begin(entry: &Arc<PodEntry>) -> Option<Self> {
        let mut state = entry.lock();
        if state.stopping {
            return None;
        }
        state.starting += 1;
        Some(Self(Arc::clone(entry)))
    }

    pub(crate) fn entry(&self) -> &Arc<PodEntry> {
        &self.0
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.lock().starting -= 1;
        self.0.bump();
    }
}

/// The kind a container found on disk has, by the pod's record.
pub(crate) fn kind_of(pod: Option<&Pod>, name: &str) -> ContainerKind {
    pod.map_or(ContainerKind::Regular, |pod| launch::kind(pod, name))
}
