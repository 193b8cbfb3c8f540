use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;

use super::{DesiredPods, Intake};
use crate::fake::{FakeRecorder, FakeRuntime};
use crate::status::StatusStore;
use crate::{
    Admission, AdmitHandler, KillReason, KillRequest, Pod, PodKiller, PodUid, PodWorkers,
    Rejection, Runtime, RuntimeSyncer, StatusOverride, WallClock, WallTime, WorkerTimes,
};

struct Node {
    runtime: FakeRuntime,
    workers: PodWorkers<RuntimeSyncer<FakeRuntime>>,
    statuses: StatusStore,
    desired: watch::Sender<Option<Arc<DesiredPods>>>,
    closed: watch::Sender<bool>,
}

/// Refuses everything while the node shuts down.
struct Gate(watch::Receiver<bool>);

impl AdmitHandler for Gate {
    fn admit(&self, _pod: &Pod, _others: &dyn Fn() -> Vec<Pod>) -> Result<(), Rejection> {
        if !*self.0.borrow() {
            return Ok(());
        }
        Err(Rejection {
            reason: "NodeShutdown".into(),
            message: "Pod was rejected as the node is shutting down.".into(),
            passing: true,
        })
    }
}

/// A node on `runtime`, which may hold pods from before.
fn node(runtime: FakeRuntime) -> Node {
    let statuses = StatusStore::default();
    let recorder = Arc::new(FakeRecorder::default());
    let shared = Arc::new(runtime.clone());
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let syncer = RuntimeSyncer::new(shared.clone(), statuses.clone(), recorder.clone(), wall);
    let workers = PodWorkers::new(syncer, recorder.clone(), WorkerTimes::default());
    let desired = watch::Sender::new(None);
    let closed = watch::Sender::new(false);
    let admission = Admission::default().then(Gate(closed.subscribe()));
    let intake = Intake::new(shared, workers.clone(), statuses.clone(), admission, recorder);
    tokio::spawn(intake.run(desired.subscribe(), closed.subscribe()));
    tokio::spawn(RuntimeSyncer::follow_changes(workers.clone()));
    Node { runtime, workers, statuses, desired, closed }
}

impl Node {
    async fn want(&self, pods: &[&Pod]) {
        self.want_of(pods, true).await;
    }

    async fn want_of(&self, pods: &[&Pod], complete: bool) {
        let pods = pods.iter().copied().cloned().collect();
        self.desired.send_replace(Some(Arc::new(DesiredPods { pods, complete })));
        settle().await;
    }

    fn said(&self, pod: &Pod) -> (String, String) {
        let status = self.statuses.get(pod.uid()).unwrap();
        (status.phase.clone().unwrap(), status.reason.clone().unwrap_or_default())
    }
}

fn pod(uid: &str, restart: &str) -> Pod {
    let source = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
    Pod::new(api::Pod {
        metadata: ObjectMeta {
            name: Some(uid.trim_end_matches(char::is_numeric).to_owned()),
            namespace: Some("default".into()),
            uid: Some(uid.to_owned()),
            annotations: Some([source].into()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![api::Container { name: "main".into(), ..api::Container::default() }],
            restart_policy: Some(restart.to_owned()),
            termination_grace_period_seconds: Some(30),
            ..api::PodSpec::default()
        }),
        status: None,
    })
    .unwrap()
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn shutdown() -> KillRequest {
    KillRequest {
        status: Some(StatusOverride {
            reason: "Terminated".into(),
            message: "Pod was terminated in response to imminent node shutdown.".into(),
            disruption_message: Some("why".into()),
        }),
        ..KillRequest::new(KillReason::Shutdown)
    }
}

#[tokio::test(start_paused = true)]
async fn wanted_pods_run_and_unwanted_ones_end_and_leave_nothing() {
    let node = node(FakeRuntime::default());
    let (web, job) = (pod("web", "Always"), pod("job", "Never"));
    node.want(&[&web, &job]).await;
    assert_eq!(node.said(&web).0, "Running");
    node.want(&[&web]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.runtime.forgotten(), [job.uid().clone()]);
    assert!(node.statuses.get(job.uid()).is_none());
    assert_eq!(node.said(&web).0, "Running");
    assert_eq!(node.runtime.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_changed_manifest_ends_the_old_pod_before_the_new_one_starts() {
    let node = node(FakeRuntime::default());
    let (old, new) = (pod("web1", "Always"), pod("web2", "Always"));
    node.runtime.stop_takes(old.uid(), Duration::from_secs(3));
    node.want(&[&old]).await;
    node.want(&[&new]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node.runtime.starts(), [old.uid().clone()]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node.runtime.starts(), [old.uid().clone(), new.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_run_when_the_agent_starts_are_kept_and_strays_are_ended() {
    let runtime = FakeRuntime::default();
    let (kept, stray) = (pod("kept", "Always"), pod("stray", "Always"));
    runtime.sync_pod(&kept).await.unwrap();
    runtime.sync_pod(&stray).await.unwrap();
    let node = node(runtime);
    settle().await;
    assert!(node.runtime.stops().is_empty(), "nothing is ended before the source was read");
    node.want(&[&kept]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.runtime.stops(), [stray.uid().clone()]);
    assert_eq!(node.runtime.starts().len(), 2, "neither was started again");
    assert_eq!(node.runtime.forgotten(), [stray.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_already_is_known_also_while_admission_is_closed() {
    let runtime = FakeRuntime::default();
    let kept = pod("kept", "Always");
    runtime.sync_pod(&kept).await.unwrap();
    let node = node(runtime);
    node.closed.send_replace(true);
    node.want(&[&kept, &pod("new", "Always")]).await;
    let active: Vec<PodUid> = node.workers.active_pods().iter().map(|p| p.uid().clone()).collect();
    assert_eq!(active, [kept.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_says_so_in_the_kubelets_words_and_is_asked_again_when_admission_opens() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.closed.send_replace(true);
    node.want(&[&web]).await;
    let status = node.statuses.get(web.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("NodeShutdown"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: Pod was rejected as the node is shutting down.")
    );
    node.closed.send_replace(false);
    settle().await;
    assert_eq!(node.said(&web), ("Running".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn static_pods_ended_by_a_cancelled_shutdown_come_back() {
    let runtime = FakeRuntime::default();
    let node = node(runtime);
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    node.closed.send_replace(true);
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    settle().await;
    assert_eq!(node.said(&web), ("Failed".into(), "Terminated".into()));
    node.closed.send_replace(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!node.workers.is_termination_requested(web.uid()));
    assert_ne!(node.said(&web).0, "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_pod_the_agent_ended_is_failed_with_its_reason_although_it_exited_with_0() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    let status = node.statuses.get(web.uid()).unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was terminated in response to imminent node shutdown.")
    );
    let conditions = status.conditions.as_ref().unwrap();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    assert!(conditions.iter().all(|c| c.type_ != "Ready" || c.status == "False"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_finished_before_it_was_asked_keeps_its_success() {
    let node = node(FakeRuntime::default());
    let job = pod("job", "Never");
    node.want(&[&job]).await;
    node.runtime.exit(job.uid(), 0);
    settle().await;
    node.workers.kill_pod(job.clone(), shutdown()).await.unwrap();
    assert_eq!(node.said(&job), ("Succeeded".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_at_the_start_is_asked_until_it_answers() {
    let runtime = FakeRuntime::default();
    runtime.fail(true);
    let node = node(runtime);
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(node.runtime.starts().is_empty());
    node.runtime.fail(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.said(&web).0, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_cannot_be_read_after_a_restart_is_left_alone_until_it_can() {
    let runtime = FakeRuntime::default();
    let (kept, hidden) = (pod("kept", "Always"), pod("hidden", "Always"));
    runtime.sync_pod(&kept).await.unwrap();
    runtime.sync_pod(&hidden).await.unwrap();
    let node = node(runtime);
    node.want_of(&[&kept], false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.runtime.stops().is_empty());
    node.want(&[&kept, &hidden]).await;
    assert_eq!(node.said(&hidden).0, "Running");
    assert_eq!(node.runtime.starts().len(), 2, "neither was started again");
    node.want(&[&kept]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.stops(), [hidden.uid().clone()]);
}
