//! A node with containers in memory: intake, workers, statuses.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use winddown_shared::status::StatusStore;
use winddown_shared::testing::{FakeRecorder, FakeRuntime};
use winddown_shared::{
    Admission, AdmitHandler, DesiredPods, Event, Intake, Lifecycle, OtherPods, Pod, PodKiller,
    PodUid, PodWorkers, Rejection, RuntimeSyncer, WallClock, WallTime,
};

use super::{pod_with, settle};

/// A node and everything a test may inspect.
pub(crate) struct Node {
    pub(crate) runtime: FakeRuntime,
    pub(crate) workers: PodWorkers<RuntimeSyncer<FakeRuntime>>,
    pub(crate) statuses: StatusStore,
    pub(crate) events: FakeRecorder,
    /// UIDs that admission refuses for now, and all pods that it checked.
    pub(crate) refused: watch::Sender<Vec<PodUid>>,
    pub(crate) desired: watch::Sender<Option<Arc<DesiredPods>>>,
    intake: tokio::task::JoinHandle<()>,
}

struct Refuse(watch::Receiver<Vec<PodUid>>);

impl AdmitHandler for Refuse {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        assert!(
            others.non_terminating().iter().all(|other| other.uid() != pod.uid()),
            "a pod is its own rival"
        );
        if !self.0.borrow().contains(pod.uid()) {
            return Ok(());
        }
        Err(Rejection::new("OutOfcpu", "full"))
    }
}

/// A node on `runtime`, which may hold pods from before the start.
pub(crate) fn node(runtime: FakeRuntime) -> Node {
    node_with(runtime, |syncer| syncer)
}

pub(crate) fn node_with(
    runtime: FakeRuntime,
    with: impl FnOnce(RuntimeSyncer<FakeRuntime>) -> RuntimeSyncer<FakeRuntime>,
) -> Node {
    let (statuses, events) = (StatusStore::default(), FakeRecorder::default());
    let (recorder, shared) = (Arc::new(events.clone()), Arc::new(runtime.clone()));
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let syncer = RuntimeSyncer::new(shared.clone(), statuses.clone(), recorder.clone(), wall);
    let syncer = with(syncer);
    let workers = PodWorkers::new(syncer, recorder.clone());
    let desired = watch::Sender::new(None);
    let refused = watch::Sender::new(Vec::new());
    let admission = Admission::default().then(Refuse(refused.subscribe()));
    let intake = Intake::new(shared, workers.clone(), statuses.clone(), admission, recorder);
    let intake = tokio::spawn(intake.run(desired.subscribe()));
    tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
    Node { runtime, workers, statuses, events, refused, desired, intake }
}

impl Node {
    pub(crate) async fn want(&self, pods: &[&Pod]) {
        let pods = pods.iter().copied().cloned().collect();
        self.desired.send_replace(Some(Arc::new(DesiredPods::all(pods))));
        settle().await;
    }

    /// Stops the agent; the runtime stays as it is.
    pub(crate) async fn end(self) {
        self.intake.abort();
        self.workers.shut_down().await;
    }

    pub(crate) fn refuse(&self, pod: &Pod) {
        self.refused.send_modify(|r| r.push(pod.uid().clone()));
    }

    pub(crate) fn phase(&self, pod: &Pod) -> Option<String> {
        self.statuses.get(pod.uid())?.phase.clone()
    }

    pub(crate) fn lifecycle(&self, pod: &Pod) -> Option<Lifecycle> {
        self.workers.lifecycle(pod.uid())
    }

    pub(crate) fn starts(&self, pod: &Pod) -> usize {
        self.runtime.starts().iter().filter(|u| *u == pod.uid()).count()
    }

    pub(crate) fn stops(&self, pod: &Pod) -> usize {
        self.runtime.stops().iter().filter(|u| *u == pod.uid()).count()
    }

    pub(crate) fn forgotten(&self, pod: &Pod) -> bool {
        self.runtime.forgotten().contains(pod.uid())
    }

    pub(crate) fn restarted(&self) -> usize {
        self.count(|e| matches!(e, Event::PodRestarted { .. }))
    }

    pub(crate) fn orphans(&self) -> usize {
        self.count(|e| matches!(e, Event::OrphanFound { .. }))
    }

    pub(crate) fn active(&self) -> usize {
        self.workers.running().pods.len()
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.events().iter().filter(|e| which(e)).count()
    }
}

/// A pod that completes when its container exits.
pub(crate) fn job(uid: &str) -> Pod {
    pod_with(uid, uid, |p| {
        if let Some(spec) = &mut p.spec {
            spec.restart_policy = Some("Never".into());
        }
    })
}

/// A pod with an init container before its container, so that two specs of one UID differ.
pub(crate) fn with_label(uid: &str, version: &str) -> Pod {
    pod_with(uid, uid, |p| {
        p.metadata.labels = Some([("version".to_owned(), version.to_owned())].into());
        p.spec.get_or_insert_with(api::PodSpec::default);
    })
}
