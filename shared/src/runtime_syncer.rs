//! The pod workers' steps, carried out on a container runtime.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;

use crate::status::{Phase, StatusInput, StatusStore, generate};
use crate::syncer::{PodSyncer, RuntimeView, Stop, SyncError, SyncUpdate, Synced};
use crate::{
    Event, Grace, Pod, PodRuntimeStatus, PodStopped, PodUid, PodWorkers, Recorder, Rejection,
    Runtime, RuntimeError, RuntimePod, StatusOverride, UidHasher, WallClock,
};

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
    host_ips: fn() -> Vec<IpAddr>,
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
        Self { runtime, statuses, recorder, wall, host_ips: Vec::new, listed, unknown }
    }

    /// Has statuses name the node's addresses as `host_ips` tells them, the foremost first. It is asked
    /// for every status, so it must be cheap and must not block; it may know none yet.
    #[must_use]
    pub fn with_host_ips(self, host_ips: fn() -> Vec<IpAddr>) -> Self {
        Self { host_ips, ..self }
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

    fn say(
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

    /// A pod that asks for what the runtime does not do is refused for good.
    fn refuse(&self, pod: Pod, error: &RuntimeError) -> Synced {
        let rejection = Rejection {
            reason: "PodFeatureUnsupported".into(),
            message: error.to_string().into(),
            passing: false,
        };
        self.recorder.record(&Event::PodRejected {
            pod: pod.label().clone(),
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        });
        self.statuses.reject(pod, &rejection);
        Synced { terminal: true, again_in: None }
    }
}

impl<R: Runtime> PodSyncer for RuntimeSyncer<R> {
    async fn sync_pod(&self, update: SyncUpdate) -> Result<Synced, SyncError> {
        let pod = update.pod;
        match self.runtime.sync_pod(&pod).await {
            Ok(synced) => {
                let phase = self.say(&pod, &synced.status, false, None);
                let terminal = phase.is_some_and(Phase::is_terminal);
                Ok(Synced { terminal, again_in: synced.again_in })
            }
            Err(error @ RuntimeError::Unsupported { .. }) => Ok(self.refuse(pod, &error)),
            Err(error) => Err(SyncError::caused_by("starting the pod's containers", error)),
        }
    }

    async fn sync_terminating_pod(&self, pod: Pod, stop: Stop) -> Result<PodStopped, SyncError> {
        let stopped = self
            .runtime
            .stop_pod(pod.uid(), Some(&pod), stop.until)
            .await
            .map_err(|e| SyncError::caused_by("error killing pod", e))?;
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
        self.say(&pod, &left, true, stop.status.as_ref());
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
            .map_err(|e| SyncError::caused_by("freeing what the pod held", e))
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, SyncError> {
        self.runtime
            .mounts(uid)
            .await
            .map_err(|e| SyncError::caused_by("reading what the pod has mounted", e))
    }

    fn lame_duck(&self, on: bool) {
        self.statuses.lame_duck(on, self.wall.now());
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
