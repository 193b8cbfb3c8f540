//! Containers in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, Grace, Pod, PodRuntimeStatus,
    PodStopped, PodUid, Runtime, RuntimeError, RuntimePod, StoppedContainer, SyncedPod, WallTime,
};

/// A [`Runtime`] whose containers run until the test or a stop ends them. Clones share one memory.
#[derive(Clone, Debug)]
pub struct FakeRuntime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changes: broadcast::Sender<PodUid>,
}

#[derive(Debug, Default)]
struct State {
    pods: HashMap<PodUid, FakePod>,
    stop_takes: HashMap<PodUid, Duration>,
    exit_codes: HashMap<PodUid, i32>,
    failing: bool,
    starts: Vec<PodUid>,
    stops: Vec<PodUid>,
    forgotten: Vec<PodUid>,
}

#[derive(Clone, Debug)]
struct FakePod {
    name: Arc<str>,
    namespace: Arc<str>,
    status: PodRuntimeStatus,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(64);
        Self(Arc::new(Inner { state: Mutex::default(), changes }))
    }
}

impl FakeRuntime {
    /// The pod's containers need this long after SIGTERM.
    pub fn stop_takes(&self, uid: &PodUid, time: Duration) {
        self.lock().stop_takes.insert(uid.clone(), time);
    }

    /// The pod's containers exit with this code when they are stopped in time.
    pub fn stops_with(&self, uid: &PodUid, exit_code: i32) {
        self.lock().exit_codes.insert(uid.clone(), exit_code);
    }

    /// Every call fails from now on, or works again.
    pub fn fail(&self, failing: bool) {
        self.lock().failing = failing;
    }

    /// The pod's containers exit by themselves.
    pub fn exit(&self, uid: &PodUid, exit_code: i32) {
        if let Some(pod) = self.lock().pods.get_mut(uid) {
            end_all(&mut pod.status, exit_code);
        }
        // Nobody listening is fine: the next look finds it.
        let _ = self.0.changes.send(uid.clone());
    }

    /// UIDs of which containers were started, once for every time.
    pub fn starts(&self) -> Vec<PodUid> {
        self.lock().starts.clone()
    }

    /// UIDs that were asked to stop, once for every time.
    pub fn stops(&self) -> Vec<PodUid> {
        self.lock().stops.clone()
    }

    /// UIDs whose last traces were removed.
    pub fn forgotten(&self) -> Vec<PodUid> {
        self.lock().forgotten.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<(), RuntimeError> {
        if self.lock().failing {
            let what = "the runtime fails as scripted".to_owned();
            return Err(RuntimeError::Failed { what, source: None });
        }
        Ok(())
    }
}

impl Runtime for FakeRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        self.check()?;
        let mut state = self.lock();
        if !state.pods.contains_key(pod.uid()) {
            state.starts.push(pod.uid().clone());
            let fake = FakePod {
                name: pod.name().clone(),
                namespace: pod.namespace().clone(),
                status: running(pod),
            };
            state.pods.insert(pod.uid().clone(), fake);
        }
        let status = state.pods.get(pod.uid()).map(|p| p.status.clone()).unwrap_or_default();
        Ok(SyncedPod { status, again_in: None })
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        _pod: Option<&Pod>,
        mut grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.lock().stops.push(uid.clone());
        self.check()?;
        let begun = Instant::now();
        let names: Vec<Arc<str>> = {
            let state = self.lock();
            state.pods.get(uid).map(|p| p.status.running().cloned().collect()).unwrap_or_default()
        };
        if names.is_empty() {
            return Ok(PodStopped::default());
        }
        let takes = self.lock().stop_takes.get(uid).copied().unwrap_or_default();
        let forced = tokio::select! {
            biased;
            () = tokio::time::sleep(takes) => false,
            () = grace.over() => true,
        };
        let mut state = self.lock();
        let own = state.exit_codes.get(uid).copied().unwrap_or(0);
        let exit_code = if forced { 137 } else { own };
        if let Some(pod) = state.pods.get_mut(uid) {
            end_all(&mut pod.status, exit_code);
        }
        Ok(PodStopped {
            signalled_at: Some(begun),
            stopped_at: Some(Instant::now()),
            containers: names
                .into_iter()
                .map(|name| StoppedContainer { name, exit_code, forced })
                .collect(),
        })
    }

    async fn clean_pod(&self, _uid: &PodUid) -> Result<(), RuntimeError> {
        self.check()
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.check()?;
        let mut state = self.lock();
        state.pods.remove(uid);
        state.forgotten.push(uid.clone());
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        self.check()?;
        Ok(self.lock().pods.get(uid).map(|p| p.status.clone()).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.check()?;
        let state = self.lock();
        let pods = state.pods.iter().map(|(uid, pod)| RuntimePod {
            uid: uid.clone(),
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            running: pod.status.any_running(),
        });
        Ok(pods.collect())
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.0.changes.subscribe()
    }
}

/// The epoch: fakes have no wall clock.
fn epoch() -> WallTime {
    WallTime::UNIX_EPOCH
}

fn running(pod: &Pod) -> PodRuntimeStatus {
    let containers = pod.spec.iter().flat_map(|s| &s.containers).map(|c| ContainerStatus {
        name: c.name.as_str().into(),
        kind: ContainerKind::Regular,
        id: format!("fake://{}/{}", pod.uid(), c.name),
        image: c.image.clone().unwrap_or_default(),
        state: ContainerState::Running { started_at: epoch() },
        last_exit: None,
        restart_count: 0,
        started: true,
        ready: true,
    });
    PodRuntimeStatus { containers: containers.collect(), started_at: Some(epoch()), ips: vec![] }
}

fn end_all(status: &mut PodRuntimeStatus, exit_code: i32) {
    for container in &mut status.containers {
        container.ready = false;
        container.state = ContainerState::Exited(ContainerExit {
            exit_code,
            signal: None,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
            message: String::new(),
            started_at: Some(epoch()),
            finished_at: Some(epoch()),
        });
    }
}
