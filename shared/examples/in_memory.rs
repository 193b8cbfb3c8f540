//! A whole node agent: containers that exist in memory only, and one controller, which lets no more
//! than two pods run. Run it with `cargo run -p winddown-shared --example in_memory`.
//!
//! What an agent brings: a [`Runtime`] (1), controllers (2), and a source of pods (3). The pod
//! workers, admission and the statuses are winddown's.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::{broadcast, watch};
use winddown_shared::status::{StatusEntry, StatusStore};
use winddown_shared::{
    Admission, ContainerKind, ContainerState, ContainerStatus, DesiredPods, Event, Grace, Intake,
    KillReason, KillRequest, Mutex, Pod, PodKiller, PodRuntimeStatus, PodStopped, PodUid,
    PodWorkers, Recorder, Runtime, RuntimeError, RuntimePod, RuntimeSyncer, StatusOverride,
    SyncedPod, WallClock, WallTime,
};

/// (1) Runs nothing, and remembers what it would run. A real one answers the same six questions.
struct InMemory(Mutex<HashMap<PodUid, Pod>>, broadcast::Sender<PodUid>);

impl Runtime for InMemory {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        self.0.lock().insert(pod.uid().clone(), pod.clone());
        Ok(self.pod_status(pod.uid()).await?.into())
    }

    // A real runtime sends SIGTERM here, and SIGKILL when `grace.expired()` resolves.
    async fn stop_pod(
        &self,
        uid: &PodUid,
        _: Option<&Pod>,
        _: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.0.lock().remove(uid);
        Ok(PodStopped::default())
    }

    async fn forget_pod(&self, _: &PodUid) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        let pods = self.0.lock();
        let spec = pods.get(uid).and_then(|pod| pod.spec.as_ref());
        let containers = spec.into_iter().flat_map(|s| &s.containers).map(|c| {
            let state = ContainerState::Running { started_at: WallTime::UNIX_EPOCH };
            ContainerStatus::new(c.name.as_str(), ContainerKind::Regular, state)
        });
        Ok(PodRuntimeStatus::new(containers.collect()))
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.0.lock().values().map(|pod| RuntimePod::of(pod, true)).collect())
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.1.subscribe()
    }
}

/// (2) Ends the least important pods until no more than `most` are left. A controller needs nothing
/// but a [`PodKiller`]: it can be tested with `winddown_shared::testing::FakeKiller`.
async fn keep_at_most(most: usize, workers: &impl PodKiller) {
    let mut pods = workers.running().pods;
    pods.sort_by_key(|pod| pod.spec.as_ref().and_then(|s| s.priority));
    let too_many = pods.len().saturating_sub(most);
    for pod in pods.into_iter().take(too_many) {
        let mut request = KillRequest::new(KillReason::Eviction);
        request.status =
            Some(StatusOverride::failed("Evicted", "Only two pods may run here.", None));
        // Resolves when no container of the pod runs, or with what still runs after its deadline.
        let ended = workers.kill_pod(pod, request).await;
        println!("{ended:?}");
    }
}

/// Prints every decision. A real agent makes logs and metrics of them.
struct Print;

impl Recorder for Print {
    fn record(&self, event: &Event) {
        println!("{event:?}");
    }
}

/// Puts the agent together, lets it run three pods, and returns the phase of each in the end.
pub async fn run() -> Result<Vec<(String, Option<String>)>, Box<dyn std::error::Error>> {
    let runtime = Arc::new(InMemory(Mutex::default(), broadcast::channel(64).0));
    let (statuses, events) = (StatusStore::default(), Arc::new(Print));
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let syncer = RuntimeSyncer::new(runtime.clone(), statuses.clone(), events.clone(), wall);
    let workers = PodWorkers::new(syncer, events.clone());
    let admission = Admission::default(); // no checks: every pod is let in
    let intake = Intake::new(runtime, workers.clone(), statuses.clone(), admission, events);

    // (3) The pods that are wanted, as state. The part that reads a directory or an API sends it here.
    let desired = watch::Sender::new(None);
    tokio::spawn(intake.run(desired.subscribe()));
    tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
    let mut pods = Vec::new();
    for (name, priority) in [("web", 10), ("batch", 1), ("database", 100)] {
        pods.push(Pod::new(serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
            "spec": { "priority": priority, "containers": [{ "name": "main" }] },
        }))?)?);
    }
    desired.send_replace(Some(Arc::new(DesiredPods::all(pods))));
    statuses.changes().wait_for(|_| statuses.all().len() == 3).await?;

    keep_at_most(2, &workers).await;
    workers.shut_down().await;
    let of = |entry: &StatusEntry| (entry.pod.name().to_string(), entry.status.phase.clone());
    Ok(statuses.all().iter().map(of).collect())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:?}", run().await?);
    Ok(())
}
