//! The pod workers' steps on a container runtime.

use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1 as k8s;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::status::{
    PodPhase, StatusInput, StatusStore, generate, lame_duck, pending_containers, phase, shows,
};
use crate::workers::has_terminal_phase;
use crate::workers::syncer::{
    PodSyncer, RuntimeStateProvider, RuntimeView, Stop, SyncError, SyncUpdate, Synced,
};
use crate::{
    ContainedRecorder, Event, GateReason, Grace, KillReason, NodeEndListener, NodeEnding, Pod,
    PodRuntimeStatus, PodStopped, PodUid, PodUidMap, PodWorkers, Recorder, Rejection, Retry,
    Runtime, RuntimeError, RuntimePod, StatusOverride, UidHasher, UnsupportedField, WallClock,
};

pub(crate) mod deadline;
mod resized;
mod stops;

use deadline::ActiveDeadlines;
use resized::GivenResources;
use stops::Stops;

/// The description of a failed start.
const STARTING: &str = "starting the pod's containers";

type Uids = HashSet<PodUid, BuildHasherDefault<UidHasher>>;

/// Runs pods on `R` and keeps their statuses.
///
/// Every step queries the runtime for what it needs, and for this pod only. There is no status cache with a "newer than
/// my last step" wait as in the kubelet: it would make each step wait for the next listing of all pods.
pub struct RuntimeSyncer<R> {
    runtime: Arc<R>,
    statuses: StatusStore,
    recorder: Arc<dyn Recorder>,
    wall: WallClock,
    host_ips: Box<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// `None` beside a kubelet, which owns the pods.
    owned: Option<OwnedPods>,
    /// The ignored fields of running pods that were last reported.
    ignored: Mutex<PodUidMap<Vec<String>>>,
    /// The announced terminations of all pods, by owner.
    endings: Mutex<Vec<(GateReason, Arc<NodeEnding>)>>,
    /// The pods that ran when the runtime was last listed; `None` before that.
    listed: Mutex<Option<Uids>>,
    /// Notified when something changed in the runtime that no worker knows of.
    unknown: Notify,
    /// The pods whose stop is in progress.
    stops: Stops,
}

/// What is kept of the pods where no other agent enforces their deadlines or resizes them.
#[derive(Default)]
struct OwnedPods {
    deadlines: ActiveDeadlines,
    /// The resources that containers run with.
    given: GivenResources,
}

impl<R: Runtime> RuntimeSyncer<R> {
    /// Creates a syncer on `runtime` that keeps statuses in `statuses`.
    pub fn new(
        runtime: Arc<R>,
        statuses: StatusStore,
        recorder: Arc<dyn Recorder>,
        wall: WallClock,
    ) -> Self {
        let recorder: Arc<dyn Recorder> = Arc::new(ContainedRecorder::new(recorder));
        runtime.record_to(&recorder);
        Self {
            runtime,
            statuses,
            recorder,
            wall,
            host_ips: Box::new(Vec::new),
            owned: Some(OwnedPods::default()),
            ignored: Mutex::default(),
            endings: Mutex::default(),
            listed: Mutex::default(),
            unknown: Notify::new(),
            stops: Stops::default(),
        }
    }

    /// Sets the source of the node's addresses in pod statuses, the primary address first. It is
    /// called for every status, so it must be cheap and must not block; it may return none yet.
    #[must_use]
    pub fn with_host_ips(self, host_ips: impl Fn() -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self { host_ips: Box::new(host_ips), ..self }
    }

    /// Leaves the end of pods that complete, or exceed `activeDeadlineSeconds`, and resizing to the kubelet that owns them.
    #[must_use]
    pub fn beside_a_kubelet(self) -> Self {
        Self { owned: None, ..self }
    }

    /// Records the result of listing the runtime. It determines how a pod is treated that its
    /// worker sees for the first time.
    pub fn note_listed(&self, pods: &[RuntimePod]) {
        let running = pods.iter().filter(|p| p.running).map(|p| p.uid.clone()).collect();
        *self.listed.lock() = Some(running);
    }

    /// Resolves when something changed in the runtime that no worker knows of, or changes were lost, and the runtime
    /// should be listed; at once if that happened since the last call. For one caller; cancel-safe.
    pub async fn relist_needed(&self) {
        self.unknown.notified().await;
    }

    /// Forwards the runtime's own changes (exits, readiness) to the workers, which it keeps alive. Runs until they are shut
    /// down ([`PodWorkers::shut_down`]), or the runtime is gone.
    pub async fn forward_runtime_changes(workers: PodWorkers<Self>) {
        let mut changes = workers.syncer().runtime.changes();
        while let Some(change) = workers.inner.root.run_until_cancelled(changes.recv()).await {
            match change {
                Ok(uid) => {
                    workers.syncer().stops.changed(&uid);
                    if !workers.resync(&uid) {
                        workers.syncer().unknown.notify_one();
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    workers.syncer().stops.all_changed();
                    workers.resync_all();
                    workers.syncer().unknown.notify_one();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Updates what one owner announces about the termination of all pods, and passes the earliest on to the runtime.
    fn tell(&self, reason: GateReason, ending: Option<NodeEnding>) {
        // Held while the runtime is informed, which returns at once, so that it never keeps a stale one.
        let mut endings = self.endings.lock();
        endings.retain(|(owner, _)| *owner != reason);
        endings.extend(ending.map(|ending| (reason, Arc::new(ending))));
        // A drain whose deadline has passed ranks behind any other termination of all pods.
        let now = Instant::now();
        let first =
            endings.iter().min_by_key(|(_, ending)| (ending.deadline <= now, ending.deadline));
        self.runtime.announce(first.map(|(_, ending)| Arc::clone(ending)));
    }

    fn publish(
        &self,
        pod: &Pod,
        runtime: &PodRuntimeStatus,
        stopped: bool,
        words: Option<&StatusOverride>,
    ) -> Option<PodPhase> {
        let status = self.status_of(pod, runtime, stopped, words);
        let phase = PodPhase::of(&status);
        self.statuses.set(pod.clone(), status);
        phase
    }

    fn status_of(
        &self,
        pod: &Pod,
        runtime: &PodRuntimeStatus,
        stopped: bool,
        words: Option<&StatusOverride>,
    ) -> k8s::PodStatus {
        let previous = self.statuses.probed(pod.uid());
        generate(StatusInput {
            pod,
            runtime,
            previous: previous.as_deref(),
            stopped,
            ended_by_agent: words,
            host_ips: &(self.host_ips)(),
            now: self.wall.now(),
        })
    }

    /// Publishes what is known of a pod before its containers are started, which may fail, or take long: a container
    /// that exited is not ready, whatever becomes of its next start. Mostly all are shown as they are.
    async fn publish_known(&self, pod: &Pod) {
        let has_completed = self.runtime.has_completed(pod);
        // A runtime that does not answer may run the pod already.
        let Ok(mut now) = self.runtime.pod_status(pod.uid()).await else { return };
        if now.containers.is_empty() {
            now.containers = pending_containers(pod);
        }
        if self.statuses.probed(pod.uid()).is_some_and(|said| shows(&said, &now.containers)) {
            return;
        }
        now.starts_over |= !has_completed;
        self.publish(pod, &now, false, None);
    }

    /// Publishes the status of a pod whose termination begins, and then each change of its readiness. Never resolves.
    ///
    /// As with a kubelet, whose status manager follows the readiness probes alone while containers are killed, a
    /// container that exits is shown when all have: a pod that still serves its last requests stays ready. Not so where
    /// all pods of the node are terminated, which nothing makes ready again, not even the end of a drain.
    async fn follow_stop(&self, pod: &Pod, reason: Option<KillReason>) -> Infallible {
        let changes = self.stops.follow(pod.uid());
        let mut shown: Option<PodRuntimeStatus> = None;
        loop {
            if let Ok(now) = self.runtime.pod_status(pod.uid()).await
                && now.any_running()
                && shown.as_mut().is_none_or(|shown| shown.take_readiness(&now, pod))
            {
                let mut status = self.status_of(pod, shown.get_or_insert(now), false, None);
                if reason.is_some_and(KillReason::is_of_node) {
                    lame_duck::unready(&mut status, self.statuses.get(pod.uid()).as_deref(), None);
                }
                self.statuses.set(pod.clone(), status);
            }
            changes.changed.notified().await;
        }
    }

    /// The rest of the time that the pod may be active; `None` if it has no deadline, or has completed by itself.
    async fn active_time_left(&self, pod: &Pod) -> Option<Duration> {
        let (owned, _) = self.owned.as_ref().zip(deadline::of(pod))?;
        let said = self.statuses.probed(pod.uid());
        let start = |status: &k8s::PodStatus| Some(status.start_time.as_ref()?.0);
        let started = said.as_deref().or(pod.status.as_ref()).and_then(start);
        // An agent that has just started knows the start time from the runtime only. If that does not answer, the pod's
        // age is unknown and nothing is counted; the step itself then fails and is retried.
        let known = self.runtime.pod_status(pod.uid()).await.ok()?;
        let started = started.or(known.started_at);
        let left = owned.deadlines.left(pod, started, self.wall.now(), Instant::now())?;
        (!phase::observed(pod, &known).is_terminal()).then_some(left)
    }

    /// Reports the fields of a running pod that are ignored, once per change.
    fn log_ignored(&self, pod: &Pod, ignored: &[UnsupportedField]) {
        let fields: Vec<String> =
            ignored.iter().map(|one| format!("{}: {}", one.field, one.why)).collect();
        let mut told = self.ignored.lock();
        let before = match fields.is_empty() {
            true => told.remove(pod.uid()).unwrap_or_default(),
            false => told.insert(pod.uid().clone(), fields.clone()).unwrap_or_default(),
        };
        drop(told);
        if !fields.is_empty() && fields != before {
            let (pod, message) = (pod.pod_ref().clone(), fields.join("; ").into());
            self.recorder.record(&Event::FieldsIgnored { pod, message });
        }
    }

    /// Rejects a pod for good that the runtime does not support: nothing of it was started.
    fn refuse(&self, pod: Pod, error: &RuntimeError) -> Synced {
        let rejection = Rejection::new("PodFeatureUnsupported", error.to_string());
        self.recorder.record(&Event::PodRejected {
            pod: pod.pod_ref().clone(),
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        });
        self.statuses.reject(pod, &rejection);
        Synced { terminal: true, ..Synced::default() }
    }
}

impl<R: Runtime> PodSyncer for RuntimeSyncer<R> {
    async fn sync_pod(&self, update: SyncUpdate) -> Result<Synced, SyncError> {
        let pod = update.pod;
        let left = self.active_time_left(&pod).await;
        if left == Some(Duration::ZERO) {
            self.recorder.record(&Event::DeadlineExceeded { pod: pod.pod_ref().clone() });
            let ended = Some(StatusOverride::deadline_exceeded());
            return Ok(Synced { terminal: true, ended, again_in: None });
        }
        self.publish_known(&pod).await;
        match self.runtime.sync_pod(&pod).await {
            Ok(synced) => {
                let phase = self.publish(&pod, &synced.status, false, None);
                // A kubelet says itself that a pod has completed, in the pod's phase.
                let terminal = self.owned.is_some() && phase.is_some_and(PodPhase::is_terminal);
                let mut ignored = synced.ignored;
                if let Some(owned) = &self.owned {
                    ignored.extend(owned.given.differ(&pod, &synced.status));
                }
                self.log_ignored(&pod, &ignored);
                let again_in = synced.again_in.into_iter().chain(left).min();
                Ok(Synced { terminal, again_in, ended: None })
            }
            Err(error @ RuntimeError::Unsupported { .. }) => Ok(self.refuse(pod, &error)),
            Err(error @ RuntimeError::NotYet { .. }) => {
                Err(SyncError::caused_by(STARTING, error).retry(Retry::TRANSIENT))
            }
            Err(error) => Err(SyncError::caused_by(STARTING, error)),
        }
    }

    async fn sync_terminating_pod(&self, pod: Pod, stop: Stop) -> Result<PodStopped, SyncError> {
        let reason = stop.until.reason();
        let stopped = tokio::select! {
            biased;
            stopped = self.runtime.stop_pod(pod.uid(), Some(&pod), stop.until) => stopped,
            never = self.follow_stop(&pod, reason) => match never {},
        };
        let stopped = stopped.map_err(|e| SyncError::caused_by("error killing pod", e))?;
        let left =
            self.runtime.pod_status(pod.uid()).await.map_err(|e| {
                SyncError::caused_by("reading the pod's containers after the stop", e)
            })?;
        if left.any_running() {
            let names: Vec<&str> = left.running().map(|n| &**n).collect();
            return Err(SyncError::new(format!(
                "the runtime reports the pod as stopped, but {} still runs",
                names.join(", ")
            )));
        }
        let words = stop.status.lock().clone();
        self.publish(&pod, &left, true, words.as_ref());
        Ok(stopped)
    }

    async fn sync_terminating_runtime_pod(
        &self,
        pod: RuntimePod,
        grace: Grace,
    ) -> Result<PodStopped, SyncError> {
        self.runtime
            .stop_pod(&pod.uid, None, grace)
            .await
            .map_err(|e| SyncError::caused_by("error killing pod", e))
    }

    async fn sync_terminated_pod(&self, pod: Pod) -> Result<(), SyncError> {
        self.runtime
            .clean_pod(pod.uid())
            .await
            .map_err(|e| SyncError::caused_by("releasing the pod's resources", e))?;
        // It had completed before this agent started, or terminated, with its source's word for how.
        let is_unsaid = self.statuses.get(pod.uid()).is_none();
        if is_unsaid && has_terminal_phase(&pod) {
            self.statuses.set(pod.clone(), pod.status.clone().unwrap_or_default());
        } else if is_unsaid {
            let now = self.runtime.pod_status(pod.uid()).await;
            let now = now.map_err(|e| SyncError::caused_by("reading the pod's exit status", e))?;
            self.publish(&pod, &now, true, None);
        }
        self.ignored.lock().remove(pod.uid());
        if let Some(owned) = &self.owned {
            owned.given.forget(pod.uid());
            owned.deadlines.forget(pod.uid());
        }
        Ok(())
    }
}

impl<R: Runtime> RuntimeStateProvider for RuntimeSyncer<R> {
    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, SyncError> {
        self.runtime
            .mounts(uid)
            .await
            .map_err(|e| SyncError::caused_by("reading the pod's mounts", e))
    }

    async fn unseen_end(&self, uid: &PodUid) -> Option<PodStopped> {
        let status = self.runtime.pod_status(uid).await.ok()?;
        let (last, containers) = status.ends()?;
        let ago = Duration::try_from(self.wall.now().duration_since(last)).unwrap_or_default();
        let stopped_at = Instant::now().checked_sub(ago);
        Some(PodStopped { stopped_at, containers, ..PodStopped::default() })
    }

    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        self.runtime.survives_soft_reboot(uid)
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        self.runtime.refuses_stop(uid, reason)
    }

    fn runtime_view(&self, uid: &PodUid) -> RuntimeView {
        match &*self.listed.lock() {
            None => RuntimeView::NotYetKnown,
            Some(running) if running.contains(uid) => RuntimeView::Running,
            Some(_) => RuntimeView::Stopped,
        }
    }

    fn last_seen_running(&self, uid: &PodUid) -> Vec<String> {
        // Of a pod that terminates, the status goes on showing what ran when that began.
        if let Some(Ok(now)) = self.runtime.pod_status(uid).now_or_never() {
            return now.running().map(ToString::to_string).collect();
        }
        let Some(status) = self.statuses.get(uid) else { return Vec::new() };
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let all = lists.into_iter().flatten().flatten();
        all.filter(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
            .map(|c| c.name.clone())
            .collect()
    }
}

impl<R: Runtime> NodeEndListener for RuntimeSyncer<R> {
    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        self.tell(reason, Some(ending));
    }

    fn lame_duck(&self, reason: GateReason, on: bool) {
        if !on {
            self.tell(reason, None);
        }
        self.statuses.lame_duck(reason, on, self.wall.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeRecorder, FakeRuntime, pod_with};
    use crate::{KillRequest, UpdateKind, WallTime};

    /// As with a kubelet, whose status manager follows the readiness probes alone while containers are killed.
    #[tokio::test(start_paused = true)]
    async fn a_terminating_pod_is_as_ready_as_its_probes_find_it_whatever_else_has_exited() {
        let (runtime, statuses) = (FakeRuntime::default(), StatusStore::default());
        let (shared, recorder) = (Arc::new(runtime.clone()), Arc::new(FakeRecorder::default()));
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let syncer = RuntimeSyncer::new(shared, statuses.clone(), recorder.clone(), wall);
        let workers = PodWorkers::new(syncer, recorder);
        let forwarding = tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
        let settle = || tokio::time::sleep(Duration::from_millis(1));
        let pod = pod_with("web", "web", |pod| {
            let container = |name: &str| k8s::Container {
                name: name.into(),
                readiness_probe: (name == "probed").then(k8s::Probe::default),
                ..k8s::Container::default()
            };
            let names = ["main", "side", "probed"];
            pod.spec.get_or_insert_default().containers = names.map(container).into();
        });
        let uid = pod.uid();
        let shown = || {
            let status = statuses.get(uid).unwrap();
            let mut conditions = status.conditions.iter().flatten();
            let ready = conditions.find(|one| one.type_ == "Ready").unwrap();
            let runs = workers.syncer().last_seen_running(uid).len();
            (ready.status.clone(), ready.message.clone().unwrap_or_default(), runs)
        };
        let is = |status: &str, message: &str, runs| (status.to_owned(), message.to_owned(), runs);
        workers.update(UpdateKind::Create, pod.clone(), None);
        settle().await;
        runtime.stop_takes(uid, Duration::from_secs(20));
        workers.request_kill(pod.clone(), &KillRequest::new(KillReason::Operator));
        settle().await;
        assert_eq!(shown(), is("True", "", 3));
        runtime.exit_one(uid, "side", 0);
        settle().await;
        assert_eq!(shown(), is("True", "", 2), "no probe found anything");
        runtime.set_ready(uid, "main", false);
        settle().await;
        assert_eq!(shown(), is("False", "containers with unready status: [main]", 2));
        runtime.set_ready(uid, "main", true);
        settle().await;
        assert_eq!(shown(), is("True", "", 2));
        runtime.exit_one(uid, "probed", 0);
        settle().await;
        assert_eq!(shown(), is("False", "containers with unready status: [probed]", 1));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(shown(), is("False", "", 0));
        workers.shut_down().await;
        tokio::time::timeout(Duration::from_secs(1), forwarding).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_a_drain_terminates_is_not_ready_again_when_the_drain_is_cancelled() {
        let (runtime, statuses) = (FakeRuntime::default(), StatusStore::default());
        let recorder = Arc::new(FakeRecorder::default());
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let shared = Arc::new(runtime.clone());
        let workers = PodWorkers::new(
            RuntimeSyncer::new(shared, statuses.clone(), recorder.clone(), wall),
            recorder,
        );
        let forwarding = tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
        let settle = || tokio::time::sleep(Duration::from_millis(1));
        let pods = ["asked", "spared"].map(|name| pod_with(name, name, |_| {}));
        let is_ready = |pod: &Pod| {
            let status = statuses.get(pod.uid()).unwrap();
            status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        for pod in &pods {
            workers.update(UpdateKind::Create, pod.clone(), None);
            runtime.stop_takes(pod.uid(), Duration::from_secs(20));
        }
        let [asked, spared] = &pods;
        settle().await;
        workers.lame_duck(GateReason::Drain, true);
        workers.request_kill(asked.clone(), &KillRequest::new(KillReason::Drain));
        settle().await;
        assert!(!is_ready(asked) && !is_ready(spared));
        workers.lame_duck(GateReason::Drain, false);
        settle().await;
        assert!(!is_ready(asked) && is_ready(spared));
        for ready in [false, true] {
            runtime.set_ready(asked.uid(), "main", ready);
            settle().await;
            assert!(!is_ready(asked), "its probe found it ready: {ready}");
        }
        workers.shut_down().await;
        tokio::time::timeout(Duration::from_secs(1), forwarding).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_of_a_pod_is_made_once_in_a_sync_that_changes_nothing() {
        let (runtime, made) = (FakeRuntime::default(), Arc::new(Mutex::new(0)));
        let recorder = Arc::new(FakeRecorder::default());
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let count = Arc::clone(&made);
        let shared = Arc::new(runtime.clone());
        let syncer = RuntimeSyncer::new(shared, StatusStore::default(), recorder.clone(), wall);
        // Asked for every status.
        let syncer = syncer.with_host_ips(move || {
            *count.lock() += 1;
            Vec::new()
        });
        let workers = PodWorkers::new(syncer, recorder);
        let settle = || tokio::time::sleep(Duration::from_millis(1));
        let pod = pod_with("web", "web", |_| {});
        workers.update(UpdateKind::Create, pod.clone(), None);
        settle().await;
        assert_eq!(*made.lock(), 2, "before its start, and after it");
        workers.resync(pod.uid());
        settle().await;
        assert_eq!(*made.lock(), 3);
        runtime.set_ready(pod.uid(), "main", false);
        workers.resync(pod.uid());
        settle().await;
        assert_eq!(*made.lock(), 5, "before the sync too");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_told_the_end_that_comes_first_and_then_the_one_that_is_left() {
        let runtime = FakeRuntime::default();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let recorder = Arc::new(FakeRecorder::default());
        let shared = Arc::new(runtime.clone());
        let syncer = RuntimeSyncer::new(shared, StatusStore::default(), recorder.clone(), wall);
        let workers = PodWorkers::new(syncer, recorder);
        let ending = |reason, seconds| NodeEnding {
            reason,
            node_action: None,
            deadline: Instant::now() + Duration::from_secs(seconds),
            requested_by: None,
            notice: None,
        };
        let told = || runtime.announced().pop().unwrap().map(|ending| ending.reason);
        workers.announce(GateReason::Drain, ending(KillReason::Drain, 60));
        assert_eq!(told(), Some(KillReason::Drain));
        workers.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 90));
        assert_eq!(told(), Some(KillReason::Drain));
        workers.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 30));
        assert_eq!(told(), Some(KillReason::Shutdown));
        workers.lame_duck(GateReason::Shutdown, false);
        assert_eq!(told(), Some(KillReason::Drain), "the node stays drained");
        tokio::time::sleep(Duration::from_secs(61)).await;
        workers.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 30));
        assert_eq!(told(), Some(KillReason::Shutdown), "the time of the drain is over");
        workers.lame_duck(GateReason::Shutdown, false);
        workers.lame_duck(GateReason::Drain, true);
        assert_eq!(told(), Some(KillReason::Drain));
        workers.lame_duck(GateReason::Drain, false);
        assert_eq!(told(), None);
    }
}
