//! The pod workers' steps, carried out on a container runtime.

use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;

use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::status::{Phase, StatusInput, StatusStore, generate, phase, unmade};
use crate::syncer::{PodSyncer, Retry, RuntimeView, Stop, SyncError, SyncUpdate, Synced};
use crate::{
    Event, GateReason, Grace, NodeEnding, Pod, PodRuntimeStatus, PodStopped, PodUid, PodUidMap,
    PodWorkers, Recorder, Rejection, Runtime, RuntimeError, RuntimePod, StatusOverride, UidHasher,
    UnsupportedField, WallClock,
};

mod deadline;
mod resized;

use deadline::Deadlines;
use resized::Given;

/// What a failed step was about.
const STARTING: &str = "starting the pod's containers";

type Uids = HashSet<PodUid, BuildHasherDefault<UidHasher>>;

/// Runs pods on `R` and keeps their statuses.
///
/// Every step asks the runtime for what it needs to know, and for this pod only. A cache of statuses
/// with a "newer than my last step" wait, as the kubelet has it, is not on the path: it would make
/// each step wait for the next listing of all pods.
pub struct RuntimeSyncer<R> {
    runtime: Arc<R>,
    statuses: StatusStore,
    recorder: Arc<dyn Recorder>,
    wall: WallClock,
    host_ips: Box<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// How long pods may be active; none where another agent sees to it.
    deadlines: Option<Deadlines>,
    /// With which resources containers run; none where another agent resizes them.
    given: Option<Given>,
    /// What was told of running pods that ask for more than they get.
    ignored: Mutex<PodUidMap<Vec<String>>>,
    /// What pods are told of the end of all of them, by owner.
    endings: Mutex<Vec<(GateReason, Arc<NodeEnding>)>>,
    /// The pods that ran when the runtime was last listed; none before that.
    listed: Mutex<Option<Uids>>,
    /// Something changed in the runtime that no worker knows of.
    unknown: Notify,
}

impl<R: Runtime> RuntimeSyncer<R> {
    /// Steps on `runtime`, with statuses kept in `statuses`.
    pub fn new(
        runtime: Arc<R>,
        statuses: StatusStore,
        recorder: Arc<dyn Recorder>,
        wall: WallClock,
    ) -> Self {
        let (listed, unknown) = (Mutex::new(None), Notify::new());
        let (ignored, deadlines) = (Mutex::default(), Some(Deadlines::default()));
        let host_ips = Box::new(Vec::new);
        let given = Some(Given::default());
        runtime.record_to(&recorder);
        Self {
            runtime,
            statuses,
            recorder,
            wall,
            host_ips,
            deadlines,
            given,
            ignored,
            endings: Mutex::default(),
            listed,
            unknown,
        }
    }

    /// Has statuses name the node's addresses as `host_ips` tells them, the foremost first. It is asked
    /// for every status, so it must be cheap and must not block; it may know none yet.
    #[must_use]
    pub fn with_host_ips(self, host_ips: impl Fn() -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self { host_ips: Box::new(host_ips), ..self }
    }

    /// Leaves `activeDeadlineSeconds`, and the resize of running containers, to the kubelet whose pods these are.
    #[must_use]
    pub fn beside_a_kubelet(self) -> Self {
        Self { deadlines: None, given: None, ..self }
    }

    /// Takes note of what the runtime answered when it was listed. A pod that its worker sees for
    /// the first time is judged by it.
    pub fn note_listed(&self, pods: &[RuntimePod]) {
        let running = pods.iter().filter(|p| p.running).map(|p| p.uid.clone()).collect();
        *self.listed() = Some(running);
    }

    /// Resolves when something changed in the runtime that no worker knows of, or changes were lost:
    /// a reason to list it. Also when that happened since the last call. For one caller;
    /// cancel-safe.
    pub async fn unknown_changes(&self) {
        self.unknown.notified().await;
    }

    /// Brings the runtime's own changes (exits, readiness) to the workers. Runs until the runtime is
    /// gone.
    pub async fn follow_changes(workers: PodWorkers<Self>) {
        let mut changes = workers.syncer().runtime.changes();
        loop {
            match changes.recv().await {
                Ok(uid) => {
                    if !workers.look_again(&uid) {
                        workers.syncer().unknown.notify_one();
                    }
                }
                Err(RecvError::Lagged(_)) => {
                    workers.look_at_all();
                    workers.syncer().unknown.notify_one();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn listed(&self) -> MutexGuard<'_, Option<Uids>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what one owner says of the end of all pods, and has the runtime tell them what comes first.
    fn tell(&self, reason: GateReason, ending: Option<NodeEnding>) {
        // Held while the runtime is told, which answers at once: it is never left with what is old.
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        endings.retain(|(owner, _)| *owner != reason);
        endings.extend(ending.map(|ending| (reason, Arc::new(ending))));
        // What a drain whose time is over has left waits for the next that ends all.
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
    ) -> Option<Phase> {
        let previous = self.statuses.probed(pod.uid());
        let status = generate(StatusInput {
            pod,
            runtime,
            previous: previous.as_deref(),
            stopped,
            ended_by_agent: words,
            host_ips: &(self.host_ips)(),
            now: self.wall.now(),
        });
        let phase = status.phase.as_deref().and_then(Phase::parse);
        self.statuses.set(pod.clone(), status);
        phase
    }

    /// Says how a pod stands of which nothing was said, however long its start takes.
    async fn publish_first(&self, pod: &Pod) {
        // A runtime that is silent may run it already.
        let Ok(mut now) = self.runtime.pod_status(pod.uid()).await else { return };
        if now.containers.is_empty() {
            now.containers = unmade(pod);
        }
        self.publish(pod, &now, false, None);
    }

    /// Says how a pod stands that is ending and of which nothing was said: it was asked to end before this agent
    /// ever looked at it. Does not end, and holds up nothing.
    async fn publish_ending(&self, pod: &Pod) -> Infallible {
        if self.statuses.get(pod.uid()).is_none()
            && let Ok(now) = self.runtime.pod_status(pod.uid()).await
            && now.any_running()
        {
            self.publish(pod, &now, false, None);
        }
        std::future::pending().await
    }

    /// What is left of the time that the pod may be active; none if it has no deadline, or has come to
    /// its end by itself.
    async fn active_time_left(&self, pod: &Pod) -> Option<Duration> {
        let (deadlines, _) = self.deadlines.as_ref().zip(deadline::of(pod))?;
        let said = self.statuses.probed(pod.uid());
        let start = |status: &k8s::PodStatus| Some(status.start_time.as_ref()?.0);
        let started = said.as_deref().or(pod.status.as_ref()).and_then(start);
        // An agent that has just started knows the start from the runtime only. While that is silent, the
        // pod's age is not known, and nothing is counted; the step itself fails then and is tried again.
        let known = self.runtime.pod_status(pod.uid()).await.ok()?;
        let started = started.or(known.started_at);
        let left = deadlines.left(pod, started, self.wall.now(), Instant::now())?;
        (!phase::observed(pod, &known).is_terminal()).then_some(left)
    }

    /// Tells what a running pod asks for and does not get, once for each change of that.
    fn log_ignored(&self, pod: &Pod, ignored: &[UnsupportedField]) {
        let fields: Vec<String> =
            ignored.iter().map(|one| format!("{}: {}", one.field, one.why)).collect();
        let mut told = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match fields.is_empty() {
            true => told.remove(pod.uid()).unwrap_or_default(),
            false => told.insert(pod.uid().clone(), fields.clone()).unwrap_or_default(),
        };
        drop(told);
        if !fields.is_empty() && fields != before {
            let (pod, message) = (pod.label().clone(), fields.join("; ").into());
            self.recorder.record(&Event::FieldsIgnored { pod, message });
        }
    }

    /// A pod that asks for what the runtime does not do is refused for good: nothing of it was started.
    fn refuse(&self, pod: Pod, error: &RuntimeError) -> Synced {
        let rejection = Rejection {
            reason: "PodFeatureUnsupported".into(),
            message: error.to_string().into(),
            retryable: false,
        };
        self.recorder.record(&Event::PodRejected {
            pod: pod.label().clone(),
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
            self.recorder.record(&Event::DeadlineExceeded { pod: pod.label().clone() });
            let ended = Some(deadline::exceeded());
            return Ok(Synced { terminal: true, ended, again_in: None });
        }
        if self.statuses.get(pod.uid()).is_none() {
            self.publish_first(&pod).await;
        }
        match self.runtime.sync_pod(&pod).await {
            Ok(synced) => {
                let phase = self.publish(&pod, &synced.status, false, None);
                let terminal = phase.is_some_and(Phase::is_terminal);
                let mut ignored = synced.ignored;
                let differ = |given: &Given| given.differ(&pod, &synced.status);
                ignored.extend(self.given.as_ref().map(differ).unwrap_or_default());
                self.log_ignored(&pod, &ignored);
                let again_in = synced.again_in.into_iter().chain(left).min();
                Ok(Synced { terminal, again_in, ended: None })
            }
            Err(error @ RuntimeError::Unsupported { .. }) => Ok(self.refuse(pod, &error)),
            Err(error @ RuntimeError::NotYet { .. }) => {
                Err(SyncError::caused_by(STARTING, error).retry(Retry::Transient))
            }
            Err(error) => Err(SyncError::caused_by(STARTING, error)),
        }
    }

    async fn sync_terminating_pod(&self, pod: Pod, stop: Stop) -> Result<PodStopped, SyncError> {
        let stopped = tokio::select! {
            stopped = self.runtime.stop_pod(pod.uid(), Some(&pod), stop.until) => stopped,
            never = self.publish_ending(&pod) => match never {},
        };
        let stopped = stopped.map_err(|e| SyncError::caused_by("error killing pod", e))?;
        let left =
            self.runtime.pod_status(pod.uid()).await.map_err(|e| {
                SyncError::caused_by("reading the pod's containers after the stop", e)
            })?;
        if left.any_running() {
            let names: Vec<&str> = left.running().map(|n| &**n).collect();
            return Err(SyncError::new(format!(
                "the runtime says the pod is stopped, but {} still runs",
                names.join(", ")
            )));
        }
        self.publish(&pod, &left, true, stop.status.as_ref());
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
            .map_err(|e| SyncError::caused_by("freeing what the pod held", e))?;
        self.ignored.lock().unwrap_or_else(PoisonError::into_inner).remove(pod.uid());
        if let Some(given) = &self.given {
            given.forget(pod.uid());
        }
        if let Some(deadlines) = &self.deadlines {
            deadlines.forget(pod.uid());
        }
        Ok(())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, SyncError> {
        self.runtime
            .mounts(uid)
            .await
            .map_err(|e| SyncError::caused_by("reading what the pod has mounted", e))
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

    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        self.tell(reason, Some(ending));
    }

    fn lame_duck(&self, reason: GateReason, on: bool) {
        if !on {
            self.tell(reason, None);
        }
        self.statuses.lame_duck(reason, on, self.wall.now());
    }

    fn runtime_view(&self, uid: &PodUid) -> RuntimeView {
        match &*self.listed() {
            None => RuntimeView::NotYetKnown,
            Some(running) if running.contains(uid) => RuntimeView::Running,
            Some(_) => RuntimeView::Stopped,
        }
    }

    fn last_seen_running(&self, uid: &PodUid) -> Vec<String> {
        let Some(status) = self.statuses.get(uid) else { return Vec::new() };
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let all = lists.into_iter().flatten().flatten();
        all.filter(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
            .map(|c| c.name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeRecorder, FakeRuntime};
    use crate::{KillReason, WallTime};

    #[tokio::test(start_paused = true)]
    async fn pods_are_told_the_end_that_comes_first_and_then_the_one_that_is_left() {
        let runtime = FakeRuntime::default();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let recorder = Arc::new(FakeRecorder::default());
        let syncer =
            RuntimeSyncer::new(Arc::new(runtime.clone()), StatusStore::default(), recorder, wall);
        let ending = |reason, seconds| NodeEnding {
            reason,
            node_action: None,
            deadline: Instant::now() + Duration::from_secs(seconds),
            requested_by: None,
            notice: None,
        };
        let told = || runtime.announced().pop().unwrap().map(|ending| ending.reason);
        syncer.announce(GateReason::Drain, ending(KillReason::Drain, 60));
        assert_eq!(told(), Some(KillReason::Drain));
        syncer.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 90));
        assert_eq!(told(), Some(KillReason::Drain));
        syncer.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 30));
        assert_eq!(told(), Some(KillReason::Shutdown));
        syncer.lame_duck(GateReason::Shutdown, false);
        assert_eq!(told(), Some(KillReason::Drain), "the node stays drained");
        tokio::time::sleep(Duration::from_secs(61)).await;
        syncer.announce(GateReason::Shutdown, ending(KillReason::Shutdown, 30));
        assert_eq!(told(), Some(KillReason::Shutdown), "the time of the drain is over");
        syncer.lame_duck(GateReason::Shutdown, false);
        syncer.lame_duck(GateReason::Drain, true);
        assert_eq!(told(), Some(KillReason::Drain));
        syncer.lame_duck(GateReason::Drain, false);
        assert_eq!(told(), None);
    }
}
