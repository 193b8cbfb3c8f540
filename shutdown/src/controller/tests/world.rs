//! Pods and disks that outlive the agents that manage them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use winddown_shared::{
    GateReason, GateReasons, KillError, KillRequest, NodeEndListener, Pod, PodKiller,
    PodStateProvider, PodStopped, PodUid, RunningPods, StatusOverride, StoppedContainer,
};

use crate::{FileError, RecordStore, ReportSink, RunPhase, RunRecord, ShutdownReport};

/// A moment at which an agent can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// At the n-th write of the record, from 0, which is stored or not.
    Record { nth: usize, kept: bool },
    /// When the n-th pod is requested to stop, which gets its SIGTERM or not.
    Kill { nth: usize, sent: bool },
    /// When the report is written, which is stored or not.
    Report { kept: bool },
    /// When the lock is released, which takes effect or not.
    Release { gone: bool },
}

/// Blocks for good whatever reaches the fault, so that nothing after it happens.
#[derive(Default)]
pub(super) struct Fuse {
    fault: Mutex<Option<Fault>>,
    pub(super) blown: Notify,
    buried: Mutex<bool>,
    bury: Condvar,
    dead: AtomicBool,
}

impl Fuse {
    pub(super) fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
        *self.buried.lock().unwrap() = false;
    }

    fn blows(&self, here: Fault) -> bool {
        let mut fault = self.fault.lock().unwrap();
        let blows = *fault == Some(here);
        if blows {
            *fault = None;
            self.blown.notify_one();
        }
        blows
    }

    /// Holds a thread of the agent until the agent is gone.
    fn hold(&self) {
        let mut buried = self.buried.lock().unwrap();
        while !*buried {
            buried = self.bury.wait(buried).unwrap();
        }
    }

    /// Marks the agent as gone: its threads may end, and change nothing until the next agent starts.
    pub(super) fn bury(&self) {
        self.dead.store(true, Ordering::SeqCst);
        *self.buried.lock().unwrap() = true;
        self.bury.notify_all();
    }

    /// Marks the threads of the previous agent as ended.
    pub(super) fn rest(&self) {
        self.dead.store(false, Ordering::SeqCst);
    }

    pub(super) async fn pass(&self, here: Fault) {
        if self.blows(here) {
            std::future::pending::<()>().await;
        }
    }
}

/// Pods that exit by themselves some time after SIGTERM, or by SIGKILL from a running agent.
#[derive(Clone, Default)]
pub(super) struct World(pub(super) Arc<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    state: Mutex<State>,
    pub(super) fuse: Fuse,
    more_known: watch::Sender<u64>,
    given_up: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Whether the runtime does not list its pods.
    is_silent: bool,
    tells_ends: bool,
    /// Whether the runtime does not say which containers it has stopped.
    names_none: bool,
    lives: Vec<Life>,
    index: HashMap<PodUid, usize>,
    kills: usize,
    unready_for: GateReasons,
    lame_duck: Vec<(Instant, bool)>,
    holds: HashMap<PodUid, (Duration, Vec<String>)>,
    /// Pods that are listed although they have stopped.
    lingering: HashSet<PodUid>,
    /// Whether the wait for mounts ignores its deadline.
    mounts_hang: bool,
}

#[derive(Clone)]
pub(super) struct Life {
    pub(super) pod: Pod,
    needs: Duration,
    /// Whether SIGKILL has no effect, because the runtime hangs.
    stuck: bool,
    /// When it was requested to stop, and when SIGKILL was due according to that request.
    pub(super) signals: Vec<(Instant, Instant)>,
    /// The status that it was last given.
    pub(super) status: Option<StatusOverride>,
    kill_at: Option<Instant>,
    pub(super) gone: Option<(Instant, bool)>,
}

impl World {
    pub(super) fn with(pods: impl IntoIterator<Item = (Pod, Duration)>) -> Self {
        let world = Self::default();
        for (pod, needs) in pods {
            world.add(pod, needs);
        }
        world
    }

    /// From now on, the runtime reports how pods ended that no agent observed.
    pub(super) fn tells_ends(&self) {
        self.lock().tells_ends = true;
    }

    /// From now on, the runtime does not say which containers it has stopped.
    pub(super) fn names_none(&self) {
        self.lock().names_none = true;
    }

    /// From now on, the runtime lists the pod of this name as this one.
    pub(super) fn lists_as(&self, name: &str, pod: Pod) {
        let mut state = self.lock();
        let place = state.index.remove(&PodUid::new(name)).unwrap();
        state.index.insert(pod.uid().clone(), place);
        state.lives[place].pod = pod;
    }

    /// Makes the runtime stop listing its pods, or list them again.
    pub(super) fn is_silent(&self, silent: bool) {
        self.lock().is_silent = silent;
        self.0.more_known.send_modify(|n| *n += 1);
    }

    pub(super) fn add(&self, pod: Pod, needs: Duration) {
        let mut state = self.lock();
        let place = state.lives.len();
        state.index.insert(pod.uid().clone(), place);
        state.lives.push(Life {
            pod,
            needs,
            stuck: false,
            signals: Vec::new(),
            status: None,
            kill_at: None,
            gone: None,
        });
    }

    /// Makes the pod stop only when it has had all the time it needs, even on SIGKILL.
    pub(super) fn sticks(&self, name: &str) {
        let mut state = self.lock();
        let place = state.index[&PodUid::new(name)];
        state.lives[place].stuck = true;
    }

    /// Makes the pod hold mounts for this long after it has stopped, or for good if that is longer than any
    /// wait.
    pub(super) fn holds(&self, name: &str, time: Duration) {
        let left = vec![format!("/mnt/{name}")];
        self.lock().holds.insert(PodUid::new(name), (time, left));
    }

    /// Keeps the pod listed after it has stopped, as if it were never cleaned up.
    pub(super) fn lingers(&self, name: &str) {
        self.lock().lingering.insert(PodUid::new(name));
    }

    pub(super) fn mounts_hang(&self) {
        self.lock().mounts_hang = true;
    }

    pub(super) fn lives(&self) -> Vec<Life> {
        let mut state = self.lock();
        state.settle();
        state.lives.clone()
    }

    /// When the lame duck state was switched on or off, counted from `start`.
    pub(super) fn lame_duck(&self, start: Instant) -> Vec<(f64, bool)> {
        let since = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        self.lock().lame_duck.iter().map(|(at, on)| (since(*at), *on)).collect()
    }

    /// Makes pods not ready for a reason that is not the controller's.
    pub(super) fn lame_duck_for(&self, reason: GateReason) {
        NodeEndListener::lame_duck(self, reason, true);
    }

    /// All pods are gone, as if they had been threads of the agent.
    pub(super) fn pods_are_lost(&self) {
        let (mut state, now) = (self.lock(), Instant::now());
        state.lives.iter_mut().for_each(|life| life.gone = life.gone.or(Some((now, true))));
    }

    /// Answers every request so far as the pod workers of an agent that stops do.
    pub(super) fn gives_up(&self) {
        self.0.given_up.send_replace(());
    }

    /// From now on there is no agent to send SIGKILL.
    pub(super) fn agent_is_gone(&self) {
        let mut state = self.lock();
        state.settle();
        state.unready_for = GateReasons::NONE;
        state.lives.iter_mut().for_each(|life| life.kill_at = None);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// Sends SIGTERM, or shortens the grace period.
    fn signal(&self, uid: &PodUid, request: &KillRequest, own: Duration) -> Option<Life> {
        let mut state = self.lock();
        state.settle();
        let place = *state.index.get(uid)?;
        let life = &mut state.lives[place];
        let now = Instant::now();
        let kill_at = now + request.grace.unwrap_or(own).max(Duration::from_secs(1));
        let kill_at = request.until.map_or(kill_at, |until| until.clamp(now, kill_at));
        if life.gone.is_none() {
            life.signals.push((now, kill_at));
            life.status.clone_from(&request.status);
            life.kill_at = Some(life.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        }
        Some(life.clone())
    }

    fn end_of(&self, uid: &PodUid) -> Option<Instant> {
        let state = self.lock();
        let life = &state.lives[*state.index.get(uid)?];
        let by_itself = life.signals.first().map(|(at, _)| *at + life.needs);
        let killed = life.kill_at.filter(|_| !life.stuck);
        life.gone.map(|(at, _)| at).or(by_itself.into_iter().chain(killed).min())
    }

    fn settled(&self, uid: &PodUid) -> Option<(Instant, bool)> {
        let mut state = self.lock();
        state.settle();
        let place = *state.index.get(uid)?;
        state.lives[place].gone
    }
}

impl State {
    fn settle(&mut self) {
        let now = Instant::now();
        for life in &mut self.lives {
            let Some((asked, _)) = life.signals.first() else { continue };
            let by_itself = *asked + life.needs;
            let killed = life.kill_at.filter(|at| *at < by_itself && !life.stuck);
            let end = killed.unwrap_or(by_itself);
            if life.gone.is_none() && end <= now {
                life.gone = Some((end, killed.is_some()));
            }
        }
    }
}

impl PodKiller for World {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        let nth = {
            let mut state = self.lock();
            state.kills += 1;
            state.kills - 1
        };
        self.0.fuse.pass(Fault::Kill { nth, sent: false }).await;
        let own = pod.termination_grace_period().unwrap_or(Duration::from_secs(30));
        let Some(life) = self.signal(pod.uid(), &request, own) else {
            return Ok(Arc::default());
        };
        self.0.fuse.pass(Fault::Kill { nth, sent: true }).await;
        if life.gone.is_some() {
            return Ok(Arc::default());
        }
        let (begun, mut given_up) = (Instant::now(), self.0.given_up.subscribe());
        while let Some(end) = self.end_of(pod.uid()) {
            if self.settled(pod.uid()).is_some() {
                break;
            }
            let deadline = request.deadline.unwrap_or(end);
            tokio::select! {
                () = sleep_until(end.min(deadline)) => {}
                Ok(()) = given_up.changed() => {
                    return Err(KillError::WorkersGone { pod: pod.pod_ref().to_string().into() });
                }
            }
            if deadline < end && Instant::now() >= deadline {
                return Err(KillError::Deadline {
                    pod: pod.pod_ref().to_string().into(),
                    waited: begun.elapsed(),
                    still_running: vec!["main".into()],
                });
            }
        }
        let (at, forced) = self.settled(pod.uid()).unwrap_or((Instant::now(), false));
        let exit_code = if forced { 137 } else { 0 };
        let containers = vec![StoppedContainer::new("main", exit_code, forced)];
        let containers = if self.lock().names_none { Vec::new() } else { containers };
        let mut stopped = PodStopped::at(at, containers);
        stopped.signalled_at = life.signals.first().map(|(at, _)| *at);
        Ok(Arc::new(stopped))
    }

    fn running(&self) -> RunningPods {
        let (lingering, is_silent) = {
            let state = self.lock();
            (state.lingering.clone(), state.is_silent)
        };
        if is_silent {
            return RunningPods::default();
        }
        let active = |life: &&Life| life.gone.is_none() || lingering.contains(life.pod.uid());
        let pods = self.lives().iter().filter(active).map(|life| life.pod.clone()).collect();
        RunningPods::known(pods)
    }

    fn non_terminating_pods(&self) -> Vec<Pod> {
        unreachable!("a run chooses among all pods")
    }

    fn more_known(&self) -> watch::Receiver<u64> {
        self.0.more_known.subscribe()
    }

    async fn volumes_released(&self, uid: &PodUid, deadline: Instant) -> Vec<String> {
        let holds = self.lock().holds.get(uid).cloned();
        let Some((time, left)) = holds else { return Vec::new() };
        let released = Instant::now() + time;
        let hangs = self.lock().mounts_hang;
        sleep_until(if hangs { released } else { released.min(deadline) }).await;
        if released <= deadline { Vec::new() } else { left }
    }
}

impl PodStateProvider for World {
    async fn unseen_end(&self, uid: &PodUid) -> Option<PodStopped> {
        let (stopped_at, forced) = self.settled(uid).filter(|_| self.lock().tells_ends)?;
        let exit_code = if forced { 137 } else { 0 };
        let containers = vec![StoppedContainer::new("main", exit_code, forced)];
        Some(PodStopped::at(stopped_at, containers))
    }

    fn survives_soft_reboot(&self, _: &PodUid) -> bool {
        true
    }
}

impl NodeEndListener for World {
    fn lame_duck(&self, reason: GateReason, on: bool) {
        let mut state = self.lock();
        let before = state.unready_for.is_empty();
        state.unready_for.set(reason, on);
        if state.unready_for.is_empty() != before {
            state.lame_duck.push((Instant::now(), on));
        }
    }
}

/// A place for the record, which is simulated in memory.
#[derive(Default)]
pub(super) struct Disk {
    world: World,
    volatile: bool,
    /// Agents are not killed while they write here.
    safe: bool,
    kept: Mutex<Option<String>>,
    /// Runs while a record is written.
    pub(super) meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
    pub(super) phases: Mutex<Vec<RunPhase>>,
}

impl Disk {
    pub(super) fn of(world: &World) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), ..Self::default() })
    }

    /// A disk that is used together with a place in memory. Agents are killed at writes to the latter.
    pub(super) fn behind_memory(world: &World) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), safe: true, ..Self::default() })
    }

    pub(super) fn memory(world: &World) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), volatile: true, ..Self::default() })
    }
}

impl RecordStore for Disk {
    fn write(&self, record: &RunRecord) -> Result<(), FileError> {
        let fuse = &self.world.0.fuse;
        if fuse.dead.load(Ordering::SeqCst) {
            return Ok(());
        }
        let nth = self.phases.lock().unwrap().len();
        self.phases.lock().unwrap().push(record.phase);
        if let Some(meanwhile) = &mut *self.meanwhile.lock().unwrap() {
            meanwhile();
        }
        if !self.safe && fuse.blows(Fault::Record { nth, kept: false }) {
            fuse.hold();
            return Ok(());
        }
        *self.kept.lock().unwrap() = Some(serde_json::to_string(record).unwrap());
        if !self.safe && fuse.blows(Fault::Record { nth, kept: true }) {
            fuse.hold();
        }
        Ok(())
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        let kept = self.kept.lock().unwrap();
        Ok(kept.as_ref().map(|text| serde_json::from_str(text).unwrap()))
    }

    fn name(&self) -> String {
        "memory".into()
    }

    fn is_volatile(&self) -> bool {
        self.volatile
    }
}

/// Stores one report per run, as a directory does.
#[derive(Default)]
pub(super) struct Reports {
    world: World,
    kept: Mutex<Vec<ShutdownReport>>,
    /// Runs while a report is written.
    pub(super) meanwhile: Mutex<Option<Box<dyn FnMut() + Send>>>,
    pub(super) full: AtomicBool,
}

impl Reports {
    pub(super) fn of(world: &World) -> Arc<Self> {
        Arc::new(Self { world: world.clone(), ..Self::default() })
    }

    pub(super) fn all(&self) -> Vec<ShutdownReport> {
        self.kept.lock().unwrap().clone()
    }
}

impl ReportSink for Reports {
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError> {
        let fuse = &self.world.0.fuse;
        if fuse.blows(Fault::Report { kept: false }) {
            fuse.hold();
            return Ok(());
        }
        if let Some(meanwhile) = &mut *self.meanwhile.lock().unwrap() {
            meanwhile();
        }
        if self.full.load(Ordering::SeqCst) {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(FileError::Io { what: "write", path: "/full".into(), source });
        }
        let mut kept = self.kept.lock().unwrap();
        kept.retain(|other| other.id() != report.id());
        kept.push(report.clone());
        drop(kept);
        if fuse.blows(Fault::Report { kept: true }) {
            fuse.hold();
        }
        Ok(())
    }
}
