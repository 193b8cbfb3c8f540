//! A node without its agent: containers in memory, and the pod workers that look after them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use winddown_cluster::pods::{
    EarlierPods, KeepPods, NodeSide, PodController, PodControllerConfig, Prepare, PrepareError,
    RunError,
};
use winddown_cluster::status::{Follow, Outbox};
use winddown_shared::status::StatusStore;
use winddown_shared::testing::FakeRuntime;
use winddown_shared::{
    Admission, Intake, KillReason, KillRequest, Pod, PodUid, PodWorkers, RuntimeSyncer,
    StatusOverride, WallClock,
};

/// What a node has of pods, whatever becomes of its agents.
#[derive(Clone, Default)]
pub(crate) struct InMemory {
    pub(crate) runtime: FakeRuntime,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// As the agent keeps them for the next one.
    pods: BTreeMap<PodUid, Pod>,
    /// All that there ever were.
    names: BTreeMap<PodUid, String>,
    workers: Option<PodWorkers<RuntimeSyncer<FakeRuntime>>>,
}

// === impl InMemory ===

impl InMemory {
    /// A controller that goes on with what an earlier one has left.
    pub(crate) fn controller(
        &self,
        client: kube::Client,
        outbox: &Outbox,
        config: PodControllerConfig,
    ) -> PodController<Outbox> {
        let earlier = EarlierPods { pods: self.pods(), complete: true };
        PodController::new(client, Arc::new(outbox.clone()), config)
            .with_keep(earlier, Arc::new(self.clone()))
    }

    /// Runs it with workers on the containers. `tells`: the runtime says by itself when something changed.
    pub(crate) fn run<R: Prepare>(
        &self,
        controller: PodController<Outbox, R>,
        outbox: Outbox,
        wall: WallClock,
        tells: bool,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), RunError>> + use<R> {
        let (runtime, statuses, events) =
            (Arc::new(self.runtime.clone()), StatusStore::default(), Arc::new(()));
        let syncer = RuntimeSyncer::new(runtime.clone(), statuses.clone(), events.clone(), wall);
        let workers = PodWorkers::new(syncer, events.clone());
        self.state().workers = Some(workers.clone());
        let admission = Admission::default();
        let intake = Intake::new(runtime, workers.clone(), statuses.clone(), admission, events);
        let mut node = JoinSet::new();
        if tells {
            node.spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
        }
        node.spawn(intake.run(controller.wanted()));
        node.spawn(Follow::new(statuses.clone(), outbox).run(stop.clone()));
        let run = controller.run(NodeSide::of_workers(workers.clone(), statuses), stop);
        async move {
            let result = run.await;
            drop(node);
            workers.shut_down().await;
            result
        }
    }

    /// The pods that were given to the node and not forgotten.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.state().pods.values().cloned().collect()
    }

    /// One of them by its name.
    pub(crate) fn pod(&self, name: &str) -> Option<Pod> {
        self.state().pods.values().find(|pod| pod.name().as_ref() == name).cloned()
    }

    /// How often each pod was started.
    pub(crate) fn created(&self) -> Vec<usize> {
        let starts = self.runtime.starts();
        let names = self.state().names.keys().cloned().collect::<Vec<_>>();
        let count = |uid: &PodUid| starts.iter().filter(|started| *started == uid).count();
        names.iter().map(count).filter(|count| *count > 0).collect()
    }

    /// Whether it ever ran this pod.
    pub(crate) fn has_created(&self, uid: &PodUid) -> bool {
        self.runtime.starts().contains(uid)
    }

    /// The graces with which this pod was to end.
    pub(crate) fn graces(&self, name: &str) -> Vec<Duration> {
        let uid =
            self.state().names.iter().find(|(_, own)| *own == name).map(|(uid, _)| uid.clone());
        uid.map(|uid| self.runtime.graces(&uid)).unwrap_or_default()
    }

    /// The pod ends by itself.
    pub(crate) fn exit(&self, name: &str, code: i32) {
        let pod = self.pod(name).unwrap();
        if self.runtime.runs(pod.uid()) {
            self.runtime.exit(pod.uid(), code);
        }
    }

    /// The node ends the pod, because it goes down.
    pub(crate) fn end_by_the_node(&self, pod: &Pod) {
        self.runtime.stops_with(pod.uid(), 143);
        let status = StatusOverride::failed(
            "Terminated",
            "Pod was terminated in response to imminent node shutdown.",
            Some("The node goes down.".into()),
        );
        let request = KillRequest::new(KillReason::Shutdown).with_status(Some(status));
        let workers = self.state().workers.clone().unwrap();
        workers.request_kill(pod.clone(), &request);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl KeepPods for InMemory {
    fn keep(&self, pod: Pod) -> BoxFuture<'_, Result<(), PrepareError>> {
        let mut state = self.state();
        state.names.insert(pod.uid().clone(), pod.name().to_string());
        state.pods.insert(pod.uid().clone(), pod);
        std::future::ready(Ok(())).boxed()
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, ()> {
        self.state().pods.remove(uid);
        std::future::ready(()).boxed()
    }
}
