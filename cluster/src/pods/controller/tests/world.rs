//! The surroundings of a controller, scripted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::watcher::{self, Event};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use winddown_api_client::refusal::Refusal;
use winddown_shared::status::StatusStore;
use winddown_shared::{
    Admission, DesiredPods, Intake, Pod, PodUid, PodWorkers, RuntimeError, RuntimeSyncer,
    WallClock, WallTime, seconds_up,
};

use crate::pods::controller::{EarlierPods, PodControllerHandle, RunError, Setup};
use crate::pods::{AsItIs, NodeSide, PodControllerConfig, Prepare};
use crate::status::{Follow, StatusUpdate};

mod objects;
mod sides;
mod state;

pub(super) use objects::{exited, once, phase, pod, running, runs};

pub(super) const NODE: &str = "node-1";

/// Everything that a scenario scripts and inspects. Cheap to clone.
#[derive(Clone)]
pub(super) struct World(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changes: broadcast::Sender<PodUid>,
    /// Whether statuses reach the API.
    acks: watch::Sender<bool>,
    began: Instant,
    clock: WallClock,
}

#[derive(Default)]
pub(super) struct State {
    /// What the API has.
    pub(super) objects: BTreeMap<String, api::Pod>,
    watchers: Vec<mpsc::UnboundedSender<watcher::Result<Event<api::Pod>>>>,
    /// The pod whose removal the API denies.
    pub(super) denied: &'static str,
    /// The API's answers to reads and removals, before it works again.
    pub(super) refusals: VecDeque<Refusal>,
    /// The API does not answer at all.
    pub(super) api_down: bool,
    /// The next lists are empty, whatever the API has.
    pub(super) empty_lists: bool,
    /// The watch reports nothing until the next list.
    pub(super) deaf: bool,
    /// Lists report nothing either.
    pub(super) silent: bool,
    /// What runs or has run.
    pub(super) running: BTreeMap<String, Container>,
    /// What is kept for the next agent.
    pub(super) kept: BTreeMap<String, Pod>,
    /// Some of that is lost.
    pub(super) misses_kept: bool,
    /// There is no room for more.
    pub(super) keeps_nothing: bool,
    /// The calls it got, in order, with the time since the start.
    pub(super) calls: Vec<(String, Duration)>,
    pub(super) create: VecDeque<Answer>,
    pub(super) update: VecDeque<Answer>,
    pub(super) delete: VecDeque<Answer>,
    /// A pod terminates this long after it was requested to; `None`: only when it is killed.
    pub(super) ends_after: Option<Duration>,
    /// It does not terminate even then.
    pub(super) immortal: bool,
    /// What a terminated pod holds cannot be freed.
    pub(super) is_held: bool,
    /// The runtime cannot list or find pods.
    pub(super) runtime_down: bool,
    /// All statuses that were submitted.
    pub(super) said: Vec<StatusUpdate>,
    pub(super) last_words: BTreeMap<String, Arc<api::PodStatus>>,
    /// The statuses of an earlier agent, and how long it takes to read them.
    pub(super) earlier_words: BTreeMap<String, Arc<api::PodStatus>>,
    pub(super) recall: Duration,
    pub(super) gone: Vec<String>,
    /// How many lists were announced to the outbox.
    pub(super) lists: usize,
    /// Violations of what must never happen.
    pub(super) wrong: Vec<String>,
    version: u64,
}

/// A pod's container.
#[derive(Clone)]
pub(super) struct Container {
    pub(super) pod: Pod,
    /// The exit code, once it has exited.
    pub(super) exit: Option<i32>,
}

/// The outcome of a call to the runtime, before it works.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Fails(RuntimeError),
    Takes(Duration),
    Hangs,
}

/// A running controller, and the node next to it.
pub(super) struct Running {
    pub(super) workers: PodWorkers<RuntimeSyncer<World>>,
    pub(super) wanted: watch::Receiver<Option<Arc<DesiredPods>>>,
    pub(super) statuses: StatusStore,
    node: Vec<AbortHandle>,
    pub(super) handle: PodControllerHandle,
    pub(super) cancel: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

pub(super) fn failed(what: &str) -> Answer {
    Answer::Fails(RuntimeError::Failed { what: what.to_owned(), source: None })
}

// === impl World ===

impl World {
    pub(super) fn new() -> Self {
        let began = Instant::now();
        let clock =
            WallClock::new(move || WallTime::from_second(1_000_000).unwrap() + began.elapsed());
        Self::with_clock(clock)
    }

    fn with_clock(clock: WallClock) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                ends_after: Some(Duration::from_secs(2)),
                ..State::default()
            }),
            changes: broadcast::channel(64).0,
            acks: watch::Sender::new(true),
            began: Instant::now(),
            clock,
        }))
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.state.lock().unwrap())
    }

    /// A wall clock that follows the paused clock.
    pub(super) fn clock(&self) -> WallClock {
        self.0.clock.clone()
    }

    pub(super) fn since_start(&self) -> Duration {
        self.0.began.elapsed()
    }

    pub(super) fn config(&self) -> PodControllerConfig {
        PodControllerConfig::new(NODE, self.clock())
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(self.config())
    }

    pub(super) fn start_with(&self, config: PodControllerConfig) -> Running {
        self.start_preparing(config, AsItIs)
    }

    pub(super) fn start_preparing<R: Prepare>(
        &self,
        config: PodControllerConfig,
        prepare: R,
    ) -> Running {
        let cancel = CancellationToken::new();
        let earlier = self.with(|state| EarlierPods {
            pods: state.kept.values().map(|pod| self.with_rest_of_grace(pod)).collect(),
            complete: !state.misses_kept,
        });
        let setup = Setup::new(Arc::new(self.clone()), config, earlier);
        let mut setup = setup.with_prepare(Arc::new(prepare));
        setup.keep = Arc::new(self.clone());
        let (handle, wanted) = (setup.handle(), setup.wanted());
        let refusals = setup.refusals();

        let (runtime, statuses, events) =
            (Arc::new(self.clone()), StatusStore::default(), Arc::new(()));
        let syncer =
            RuntimeSyncer::new(runtime.clone(), statuses.clone(), events.clone(), self.clock());
        let workers = PodWorkers::new(syncer, events.clone());
        let admission = Admission::default().then(refusals);
        let intake = Intake::new(runtime, workers.clone(), statuses.clone(), admission, events);
        let follow = Follow::new(statuses.clone(), self.clone()).run(cancel.clone());
        let node = vec![
            tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone())).abort_handle(),
            tokio::spawn(intake.run(wanted.clone())).abort_handle(),
            tokio::spawn(follow).abort_handle(),
        ];

        let side = NodeSide::of_workers(workers.clone(), statuses.clone());
        let side = side.with_remains(Arc::new(self.clone()));
        let task = tokio::spawn(setup.run(self.clone(), side, cancel.clone()));
        Running { workers, wanted, statuses, node, handle, cancel, task }
    }

    /// The pod as its record has it for an agent that starts now.
    fn with_rest_of_grace(&self, pod: &Pod) -> Pod {
        let mut object = pod.object().clone();
        if let Some(end) = &object.metadata.deletion_timestamp {
            let left = Duration::try_from(end.0.duration_since(self.clock().now()));
            let left = i64::try_from(seconds_up(left.unwrap_or_default())).unwrap();
            object.metadata.deletion_grace_period_seconds = Some(left);
        }
        Pod::new(object).unwrap()
    }

    /// The same API, containers and final statuses, without anything that an agent remembers.
    pub(super) fn after_restart(&self) -> Self {
        let world = Self::with_clock(self.clock());
        let old = self.0.state.lock().unwrap();
        world.with(|state| {
            state.objects.clone_from(&old.objects);
            state.running.clone_from(&old.running);
            state.kept.clone_from(&old.kept);
            state.misses_kept = old.misses_kept;
            state.last_words.clone_from(&old.last_words);
            state.ends_after = old.ends_after;
        });
        // Unsent statuses are sent first.
        for update in old.said.iter().filter(|update| update.last) {
            world.write(update);
            world.with(|state| state.said.push(update.clone()));
        }
        world
    }

    /// The API has this pod from now on.
    pub(super) fn apply(&self, mut pod: api::Pod) {
        self.with(|state| {
            state.version += 1;
            pod.metadata.resource_version = Some(state.version.to_string());
            let uid = pod.metadata.uid.clone().unwrap();
            state.objects.insert(uid, pod.clone());
            state.send(&Event::Apply(pod));
        });
    }

    pub(super) fn edit(&self, uid: &str, edit: impl FnOnce(&mut api::Pod)) {
        let mut pod = self.object(uid).expect("the API has the pod");
        edit(&mut pod);
        self.apply(pod);
    }

    /// Deletes a pod as a user would, with this grace period.
    pub(super) fn delete(&self, uid: &str, grace: u64) {
        let now = self.clock().now();
        self.edit(uid, |pod| {
            let end = now + Duration::from_secs(grace);
            pod.metadata.deletion_timestamp = Some(Time(end));
            pod.metadata.deletion_grace_period_seconds = Some(i64::try_from(grace).unwrap());
        });
    }

    /// The object vanishes; `edit` changes its last state.
    pub(super) fn vanish(&self, uid: &str, edit: impl FnOnce(&mut api::Pod)) {
        self.with(|state| {
            if let Some(mut pod) = state.objects.remove(uid) {
                edit(&mut pod);
                state.send(&Event::Delete(pod));
            }
        });
    }

    pub(super) fn object(&self, uid: &str) -> Option<api::Pod> {
        self.with(|state| state.objects.get(uid).cloned())
    }

    pub(super) fn phase(&self, uid: &str) -> Option<String> {
        self.object(uid)?.status?.phase
    }

    /// The watch breaks off and everything is listed again.
    pub(super) fn relist(&self) {
        self.with(|state| {
            state.deaf = state.silent;
            let objects = if state.empty_lists { Vec::new() } else { state.all() };
            state.send(&Event::Init);
            for object in objects {
                state.send(&Event::InitApply(object));
            }
            state.send(&Event::InitDone);
        });
    }

    pub(super) fn watch_fails(&self) {
        self.with(|state| {
            for watcher in &state.watchers {
                let _ = watcher.send(Err(watcher::Error::NoResourceVersion));
            }
        });
    }

    /// The pod has been running since before, and an earlier agent recorded it.
    pub(super) fn runs(&self, pod: api::Pod, exit: Option<i32>) {
        let mut given = pod.clone();
        given.status = None;
        let uid = pod.metadata.uid.clone().unwrap();
        self.with(|state| state.kept.insert(uid, Pod::new(given).unwrap()));
        self.found(pod, exit);
    }

    /// The pod has been running since before, and nothing else is known about it.
    pub(super) fn found(&self, pod: api::Pod, exit: Option<i32>) {
        let uid = pod.metadata.uid.clone().unwrap();
        let container = Container { pod: Pod::new(pod).unwrap(), exit };
        self.with(|state| state.running.insert(uid, container));
    }

    /// A pod exits by itself. With restart policy Always it would be started again.
    pub(super) fn ends(&self, uid: &str, code: i32) {
        self.with(|state| {
            if let Some(running) = state.running.get_mut(uid) {
                running.exit.get_or_insert(code);
            }
        });
        self.changes(uid);
    }

    /// Something about a pod has changed.
    pub(super) fn changes(&self, uid: &str) {
        let _ = self.0.changes.send(PodUid::new(uid));
    }

    /// Whether statuses reach the API.
    pub(super) fn acks(&self, on: bool) {
        self.0.acks.send_replace(on);
        if on {
            let said = self.with(|state| state.said.clone());
            for update in said {
                self.write(&update);
            }
        }
    }

    pub(super) fn calls(&self, of: &str) -> usize {
        self.with(|state| state.calls.iter().filter(|(call, _)| call.starts_with(of)).count())
    }

    pub(super) fn call_times(&self, of: &str) -> Vec<Duration> {
        self.with(|state| {
            let calls = state.calls.iter().filter(|(call, _)| call.starts_with(of));
            calls.map(|(_, at)| *at).collect()
        })
    }

    pub(super) fn said(&self, uid: &str) -> Vec<StatusUpdate> {
        self.with(|state| {
            state.said.iter().filter(|u| u.pod.uid.as_str() == uid).cloned().collect()
        })
    }

    /// Waits until `holds`, for two hours of the paused clock.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let mut step = Duration::from_millis(5);
        while self.since_start() < Duration::from_secs(7200) {
            if holds(self) {
                return;
            }
            sleep(step).await;
            // Fine at first, where scenarios measure; coarse where they only wait.
            step = (step + step / 50).min(Duration::from_secs(1));
        }
        let calls = self.with(|state| state.calls.clone());
        panic!("never: {what}; calls: {calls:?}");
    }

    /// Whether `holds` for this long.
    pub(super) async fn holds_for(
        &self,
        time: Duration,
        what: &str,
        holds: impl Fn(&World) -> bool,
    ) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            assert!(holds(self), "not any more after {:?}: {what}", self.since_start());
            sleep(time / 200).await;
        }
    }

    fn called(&self, call: String) {
        let at = self.since_start();
        self.with(|state| state.calls.push((call, at)));
    }

    fn write(&self, update: &StatusUpdate) {
        let uid = update.pod.uid.as_str();
        let Some(mut pod) = self.object(uid) else { return };
        pod.status = Some((*update.status).clone());
        self.apply(pod);
    }
}

// === impl Running ===

impl Running {
    pub(super) async fn ready(&mut self) {
        let ready = timeout(Duration::from_secs(60), self.handle.ready()).await;
        assert!(ready.expect("ready within a minute"), "it ended before it was ready");
    }

    pub(super) async fn stop(self) -> Result<(), RunError> {
        self.cancel.cancel();
        self.end().await
    }

    /// Stops it as SIGKILL would, without waiting.
    pub(super) fn kill(self) {
        self.task.abort();
        self.node.iter().for_each(AbortHandle::abort);
    }

    pub(super) async fn end(self) -> Result<(), RunError> {
        let ended = timeout(Duration::from_secs(600), self.task).await.expect("it ends").unwrap();
        self.node.iter().for_each(AbortHandle::abort);
        ended
    }
}
