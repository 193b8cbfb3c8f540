//! A fake runtime with containers in memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, Grace, KillReason, NodeEnding,
    Pod, PodRuntimeStatus, PodStats, PodStopped, PodUid, Runtime, RuntimeError, RuntimePod,
    StoppedContainer, SyncedPod, UnsupportedField, WallTime,
};

/// A [`Runtime`] whose containers run until the test or a stop ends them. Clones share one state.
#[derive(Clone, Debug)]
pub struct FakeRuntime(Arc<FakeRuntimeShared>);

#[derive(Debug)]
struct FakeRuntimeShared {
    state: Mutex<RuntimeState>,
    changes: broadcast::Sender<PodUid>,
}

#[derive(Debug, Default)]
struct RuntimeState {
    announced: Vec<Option<Arc<NodeEnding>>>,
    pods: HashMap<PodUid, FakePod>,
    stop_takes: HashMap<PodUid, Duration>,
    exit_codes: HashMap<PodUid, i32>,
    stop_fails: HashMap<PodUid, u32>,
    refused: HashSet<PodUid>,
    stop_at_shutdown_only: HashSet<PodUid>,
    failing: bool,
    starts_fail: bool,
    forget_fails: u32,
    forgets_hang: bool,
    clean_takes: HashMap<PodUid, Duration>,
    clean_fails: HashMap<PodUid, u32>,
    cleaned: Vec<PodUid>,
    mounts: HashMap<PodUid, Vec<String>>,
    lists: usize,
    lists_hang: bool,
    lists_take: Duration,
    starts: Vec<PodUid>,
    stops: Vec<PodUid>,
    graces: HashMap<PodUid, Vec<Duration>>,
    forgotten: Vec<PodUid>,
    /// What pods use; `None` until a test says it.
    usage: Option<HashMap<PodUid, PodStats>>,
}

#[derive(Clone, Debug)]
struct FakePod {
    name: Arc<str>,
    namespace: Arc<str>,
    grace: Option<Duration>,
    spec_mark: Option<Arc<str>>,
    status: PodRuntimeStatus,
    /// The pod was stopped and has the restart policy `Always`, so the next sync starts it again.
    again: bool,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(64);
        Self(Arc::new(FakeRuntimeShared { state: Mutex::default(), changes }))
    }
}

impl FakeRuntime {
    /// Sets how long the pod's containers need after SIGTERM.
    pub fn stop_takes(&self, uid: &PodUid, time: Duration) {
        self.0.state.lock().stop_takes.insert(uid.clone(), time);
    }

    /// Sets the exit code of the pod's containers when they stop in time.
    pub fn stops_with(&self, uid: &PodUid, exit_code: i32) {
        self.0.state.lock().exit_codes.insert(uid.clone(), exit_code);
    }

    /// Sets whether every call fails from now on.
    pub fn fail(&self, failing: bool) {
        self.0.state.lock().failing = failing;
    }

    /// Makes every start fail from now on.
    pub fn fail_starts(&self) {
        self.0.state.lock().starts_fail = true;
    }

    /// Makes this many stops of the pod fail before one succeeds.
    pub fn stop_fails(&self, uid: &PodUid, times: u32) {
        self.0.state.lock().stop_fails.insert(uid.clone(), times);
    }

    /// Makes this many calls of `forget_pod` fail before one succeeds.
    pub fn forget_fails(&self, times: u32) {
        self.0.state.lock().forget_fails = times;
    }

    /// Sets whether calls of `forget_pod` hang from now on.
    pub fn hang_forgets(&self, hang: bool) {
        self.0.state.lock().forgets_hang = hang;
    }

    /// Sets how long a clean-up of the pod takes.
    pub fn clean_takes(&self, uid: &PodUid, time: Duration) {
        self.0.state.lock().clean_takes.insert(uid.clone(), time);
    }

    /// Makes this many clean-ups of the pod fail before one succeeds.
    pub fn clean_fails(&self, uid: &PodUid, times: u32) {
        self.0.state.lock().clean_fails.insert(uid.clone(), times);
    }

    /// The UIDs that were cleaned up, once per clean-up.
    pub fn cleaned(&self) -> Vec<PodUid> {
        self.0.state.lock().cleaned.clone()
    }

    /// Gives the pod these mount points until it is cleaned up.
    pub fn mounted<'a>(&self, uid: &PodUid, mounts: impl IntoIterator<Item = &'a str>) {
        let mounts = mounts.into_iter().map(str::to_owned).collect();
        self.0.state.lock().mounts.insert(uid.clone(), mounts);
    }

    /// Makes the pod use a field that this runtime does not support.
    pub fn refuse(&self, uid: &PodUid) {
        self.0.state.lock().refused.insert(uid.clone());
    }

    /// Refuses to stop the pod unless the node shuts down.
    pub fn stops_at_shutdown_only(&self, uid: &PodUid) {
        self.0.state.lock().stop_at_shutdown_only.insert(uid.clone());
    }

    /// Makes the containers of a stopped pod run again, as if another program had started them.
    pub fn revive(&self, uid: &PodUid) {
        if let Some(pod) = self.0.state.lock().pods.get_mut(uid) {
            for container in &mut pod.status.containers {
                container.state = ContainerState::Running { started_at: epoch() };
            }
        }
    }

    /// Sets what the readiness probe of the pod's container finds, and announces it.
    pub fn set_ready(&self, uid: &PodUid, name: &str, ready: bool) {
        if let Some(pod) = self.0.state.lock().pods.get_mut(uid) {
            let containers = pod.status.containers.iter_mut();
            containers.filter(|one| &*one.name == name).for_each(|one| one.ready = ready);
        }
        self.announce(uid);
    }

    /// Whether any container of the pod runs.
    pub fn runs(&self, uid: &PodUid) -> bool {
        self.0.state.lock().pods.get(uid).is_some_and(|p| p.status.any_running())
    }

    /// Sets whether listings hang from now on.
    pub fn hang_lists(&self, hang: bool) {
        self.0.state.lock().lists_hang = hang;
    }

    /// Sets how long a listing takes. It returns the state from when it started.
    pub fn lists_take(&self, time: Duration) {
        self.0.state.lock().lists_take = time;
    }

    /// How often the runtime was listed.
    pub fn lists(&self) -> usize {
        self.0.state.lock().lists
    }

    /// Announces a change of a pod.
    pub fn announce(&self, uid: &PodUid) {
        // Without a listener, the next poll finds the change.
        let _ = self.0.changes.send(uid.clone());
    }

    /// Makes the pod's containers exit by themselves.
    pub fn exit(&self, uid: &PodUid, exit_code: i32) {
        self.exit_of(uid, exit_code, |_| true);
    }

    /// Makes one container of the pod exit by itself.
    pub fn exit_one(&self, uid: &PodUid, name: &str, exit_code: i32) {
        self.exit_of(uid, exit_code, |container| &*container.name == name);
    }

    fn exit_of(&self, uid: &PodUid, exit_code: i32, wanted: impl Fn(&ContainerStatus) -> bool) {
        if let Some(pod) = self.0.state.lock().pods.get_mut(uid) {
            let containers = pod.status.containers.iter_mut();
            containers.filter(|one| wanted(one)).for_each(|one| end(one, exit_code));
        }
        self.announce(uid);
    }

    /// Sets what the pod uses. Before the first call, the runtime measures no pods.
    pub fn uses(&self, uid: &PodUid, stats: PodStats) {
        self.0.state.lock().usage.get_or_insert_default().insert(uid.clone(), stats);
    }

    /// The calls of [`Runtime::announce`].
    pub fn announced(&self) -> Vec<Option<Arc<NodeEnding>>> {
        self.0.state.lock().announced.clone()
    }

    /// The UIDs whose containers were started, once per start.
    pub fn starts(&self) -> Vec<PodUid> {
        self.0.state.lock().starts.clone()
    }

    /// The UIDs that were asked to stop, once per request.
    pub fn stops(&self) -> Vec<PodUid> {
        self.0.state.lock().stops.clone()
    }

    /// The grace periods with which the pod was asked to stop.
    pub fn graces(&self, uid: &PodUid) -> Vec<Duration> {
        self.0.state.lock().graces.get(uid).cloned().unwrap_or_default()
    }

    /// The UIDs that were forgotten.
    pub fn forgotten(&self) -> Vec<PodUid> {
        self.0.state.lock().forgotten.clone()
    }

    fn check(&self) -> Result<(), RuntimeError> {
        if self.0.state.lock().failing { Err(failure()) } else { Ok(()) }
    }
}

fn scripted_refusal() -> UnsupportedField {
    UnsupportedField { field: "spec.volumes".to_owned(), why: "refused as scripted".to_owned() }
}

impl Runtime for FakeRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        self.check()?;
        let mut state = self.0.state.lock();
        if state.starts_fail {
            return Err(failure());
        }
        let asks_too_much = state.refused.contains(pod.uid());
        let ignored: Vec<_> = asks_too_much.then(scripted_refusal).into_iter().collect();
        if let (Some(one), false) = (ignored.first(), state.pods.contains_key(pod.uid())) {
            return Err(one.clone().into());
        }
        let starts_again = |known: &FakePod| {
            let has_changed = known.spec_mark.as_deref() != pod.spec_mark();
            known.again || (has_changed && !known.status.any_running())
        };
        if state.pods.get(pod.uid()).is_none_or(starts_again) {
            state.starts.push(pod.uid().clone());
            let fake = FakePod {
                name: pod.name().clone(),
                namespace: pod.namespace().clone(),
                grace: pod.termination_grace_period(),
                spec_mark: pod.spec_mark().map(Into::into),
                status: running(pod),
                again: false,
            };
            state.pods.insert(pod.uid().clone(), fake);
        }
        let status = state.pods.get(pod.uid()).map(|p| p.status.clone()).unwrap_or_default();
        Ok(SyncedPod { status, ignored, ..SyncedPod::default() })
    }

    fn announce(&self, ending: Option<Arc<NodeEnding>>) {
        self.0.state.lock().announced.push(ending);
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        mut grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.0.state.lock().stops.push(uid.clone());
        self.0.state.lock().graces.entry(uid.clone()).or_default().push(grace.remaining());
        self.check()?;
        if let Some(left @ 1..) = self.0.state.lock().stop_fails.get_mut(uid) {
            *left -= 1;
            return Err(failure());
        }
        let begun = Instant::now();
        let names: Vec<Arc<str>> = {
            let state = self.0.state.lock();
            state.pods.get(uid).map(|p| p.status.running().cloned().collect()).unwrap_or_default()
        };
        if names.is_empty() {
            return Ok(PodStopped::default());
        }
        let takes = self.0.state.lock().stop_takes.get(uid).copied().unwrap_or_default();
        let forced = tokio::select! {
            biased;
            () = tokio::time::sleep(takes) => false,
            () = grace.expired() => true,
        };
        let policy = pod.and_then(|pod| pod.spec.as_ref()?.restart_policy.as_deref());
        let again = pod.is_some() && policy.unwrap_or("Always") == "Always";
        let mut state = self.0.state.lock();
        let own = state.exit_codes.get(uid).copied().unwrap_or(0);
        let exit_code = if forced { 137 } else { own };
        if let Some(pod) = state.pods.get_mut(uid) {
            end_all(&mut pod.status, exit_code);
            pod.again = again;
        }
        Ok(PodStopped {
            signalled_at: Some(begun),
            stopped_at: Some(Instant::now()),
            containers: names
                .into_iter()
                .map(|name| StoppedContainer { name, exit_code, forced })
                .collect(),
            ..PodStopped::default()
        })
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.check()?;
        let takes = self.0.state.lock().clean_takes.get(uid).copied();
        if let Some(takes) = takes {
            tokio::time::sleep(takes).await;
        }
        let mut state = self.0.state.lock();
        if let Some(left @ 1..) = state.clean_fails.get_mut(uid) {
            *left -= 1;
            return Err(failure());
        }
        state.mounts.remove(uid);
        state.cleaned.push(uid.clone());
        Ok(())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        self.check()?;
        Ok(self.0.state.lock().mounts.get(uid).cloned().unwrap_or_default())
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.check()?;
        let hang = self.0.state.lock().forgets_hang;
        if hang {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.state.lock();
        if state.pods.get(uid).is_some_and(|pod| pod.status.any_running()) {
            let what = "the pod still runs: stop it before it is forgotten".to_owned();
            return Err(RuntimeError::Failed { what, source: None });
        }
        if state.forget_fails > 0 {
            state.forget_fails -= 1;
            return Err(failure());
        }
        state.pods.remove(uid);
        state.forgotten.push(uid.clone());
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        self.check()?;
        Ok(self.0.state.lock().pods.get(uid).map(|p| p.status.clone()).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.0.state.lock().lists += 1;
        let hang = self.0.state.lock().lists_hang;
        if hang {
            std::future::pending::<()>().await;
        }
        self.check()?;
        let (pods, time) = {
            let state = self.0.state.lock();
            let pods = state.pods.iter().map(|(uid, pod)| {
                let (name, namespace) = (pod.name.clone(), pod.namespace.clone());
                RuntimePod {
                    grace: pod.grace,
                    spec_mark: pod.spec_mark.clone(),
                    ..RuntimePod::new(uid.clone(), name, namespace, pod.status.any_running())
                }
            });
            (pods.collect(), state.lists_take)
        };
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        Ok(pods)
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.0.changes.subscribe()
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        match self.0.state.lock().refused.contains(pod.uid()) {
            true => Err(scripted_refusal().into()),
            false => Ok(()),
        }
    }

    fn has_completed(&self, pod: &Pod) -> bool {
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let is_done = |container: &ContainerStatus| match &container.state {
            ContainerState::Exited(exit) => policy == Some("Never") || exit.exit_code == 0,
            ContainerState::Running { .. } | ContainerState::Waiting { .. } => false,
        };
        let state = self.0.state.lock();
        let known = state.pods.get(pod.uid()).filter(|known| !known.again);
        let restarts = policy.is_none_or(|policy| policy == "Always");
        !restarts && known.is_some_and(|known| known.status.containers.iter().all(is_done))
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        let is_refused = reason != KillReason::Shutdown
            && self.0.state.lock().stop_at_shutdown_only.contains(uid);
        is_refused.then(|| "refused as scripted".into())
    }

    async fn pod_stats(
        &self,
        _: Option<Duration>,
    ) -> Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError> {
        self.check()?;
        Ok(self.0.state.lock().usage.clone().map(|usage| usage.into_iter().collect()))
    }
}

fn failure() -> RuntimeError {
    RuntimeError::Failed { what: "the runtime fails as scripted".to_owned(), source: None }
}

/// The Unix epoch, because fakes have no wall clock.
fn epoch() -> WallTime {
    WallTime::UNIX_EPOCH
}

fn running(pod: &Pod) -> PodRuntimeStatus {
    let state = ContainerState::Running { started_at: epoch() };
    let containers = pod.spec.iter().flat_map(|s| &s.containers).map(|c| ContainerStatus {
        id: format!("fake://{}/{}", pod.uid(), c.name),
        image: c.image.clone().unwrap_or_default(),
        ..ContainerStatus::new(c.name.as_str(), ContainerKind::Regular, state.clone())
    });
    let started_at = Some(epoch());
    PodRuntimeStatus { started_at, ..PodRuntimeStatus::new(containers.collect()) }
}

fn end_all(status: &mut PodRuntimeStatus, exit_code: i32) {
    status.containers.iter_mut().for_each(|container| end(container, exit_code));
}

fn end(container: &mut ContainerStatus, exit_code: i32) {
    container.ready = false;
    let (started_at, finished_at) = (Some(epoch()), Some(epoch()));
    container.state = ContainerState::Exited(ContainerExit {
        started_at,
        finished_at,
        ..ContainerExit::new(exit_code)
    });
}
