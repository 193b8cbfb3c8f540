//! How statuses come together in the kubelet, seen from the API: from the pod workers' store to there.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_cluster::status::Follow;
use winddown_shared::status::{StatusInput, StatusStore, generate};
use winddown_shared::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod, PodRuntimeStatus,
    StatusOverride, WallTime,
};

use crate::status::world::*;

struct Node {
    server: ApiServer,
    agent: Agent,
    store: StatusStore,
    cancel: CancellationToken,
}

impl Node {
    async fn start() -> Self {
        let server = ApiServer::start().await.unwrap();
        let agent = Agent::start(&server, None).await;
        let (store, cancel) = (StatusStore::default(), CancellationToken::new());
        tokio::spawn(Follow::new(store.clone(), agent.outbox.clone()).run(cancel.clone()));
        Self { server, agent, store, cancel }
    }

    /// The pod workers have looked at the pod.
    fn look(
        &self,
        pod: &Pod,
        state: ContainerState,
        stopped: bool,
        words: Option<&StatusOverride>,
    ) {
        let previous = self.store.get(pod.uid());
        let mut container = ContainerStatus::new("main", ContainerKind::Regular, state);
        (container.id, container.image) = ("process://1".into(), "i".into());
        let mut runtime = PodRuntimeStatus::new(vec![container]);
        runtime.started_at = Some(WallTime::UNIX_EPOCH);
        let status = generate(StatusInput {
            pod,
            runtime: &runtime,
            previous: previous.as_deref(),
            stopped,
            ended_by_agent: words,
            host_ips: &[],
            now: WallTime::from_second(100).unwrap(),
        });
        self.store.set(pod.clone(), status);
    }

    async fn until_phase(&self, phase: &str) -> std::sync::Arc<serde_json::Value> {
        let is = |o: &winddown_apiserver::Objects<'_>| {
            o.get("pods/default/web").filter(|pod| pod["status"]["phase"] == phase)
        };
        self.server.within(LONG, phase, is).await.unwrap()
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.agent.cut().await;
    }
}

fn exited(exit_code: i32) -> ContainerState {
    let mut exit = ContainerExit::new(exit_code);
    exit.reason = "Completed".into();
    exit.started_at = Some(WallTime::UNIX_EPOCH);
    exit.finished_at = Some(WallTime::from_second(50).unwrap());
    ContainerState::Exited(exit)
}

fn up() -> ContainerState {
    ContainerState::Running { started_at: WallTime::UNIX_EPOCH }
}

fn by_shutdown() -> StatusOverride {
    StatusOverride::failed(
        "Terminated",
        "Pod was terminated in response to imminent node shutdown.",
        Some("Pod was terminated in response to imminent node shutdown.".into()),
    )
}

/// While a container runs nothing of the end is seen; then all of it in one patch (k8s#108594). The cause of the end
/// stays although every container exits with 0 (k8s#141483).
#[tokio::test]
async fn the_end_is_seen_as_a_whole_and_never_beside_ready() {
    let node = Node::start().await;
    let pod = make(&node.server, "web", json!({ "phase": "Pending" }));
    node.look(&pod, up(), false, None);
    let running = node.until_phase("Running").await;
    assert_eq!(condition(&running, "Ready")["status"], "True");
    // The kill has been asked for and the container has not ended.
    node.look(&pod, up(), true, Some(&by_shutdown()));
    node.agent.told(pod.pod_ref()).await;
    let there = in_api(&node.server, "web");
    assert_eq!(there["status"]["phase"], "Running");
    assert_eq!(there["status"].get("reason"), None);
    assert!(condition(&there, "DisruptionTarget").is_null());
    node.store.remove(pod.uid());
    node.look(&pod, exited(0), true, Some(&by_shutdown()));
    let there = node.until_phase("Failed").await;
    assert_eq!(there["status"]["reason"], "Terminated");
    assert_eq!(there["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert!(node.agent.outbox.final_status(pod.uid()).is_some());
    assert_eq!(condition(&there, "Ready")["status"], "False");
    assert_eq!(condition(&there, "ContainersReady")["status"], "False");
    assert_eq!(condition(&there, "DisruptionTarget")["reason"], "TerminationByKubelet");
    let ends: Vec<_> = node
        .server
        .requests()
        .into_iter()
        .filter(|r| r.body["status"]["phase"] == "Failed")
        .collect();
    assert_eq!(ends.len(), 1, "in one patch");
    node.stop().await;
}

/// The power fails, and the pod starts over: the API server takes no init container back that has done its work, nor any
/// status with one (k8s validation of `initContainerStatuses`).
#[tokio::test]
async fn a_pod_whose_init_containers_run_again_after_a_boot_is_not_ready_and_has_its_new_address() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::start(&server, None).await;
    let container = |name: &str, state: Value| json!({ "name": name, "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": state });
    let done = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let mut before = running();
    before["initContainerStatuses"] = json!([container("migrate", done)]);
    let object = server.apply(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "nodeName": "node-1", "restartPolicy": "OnFailure",
            "initContainers": [{ "name": "migrate", "image": "i" }],
            "containers": [{ "name": "main", "image": "i" }],
        },
        "status": before,
    }));
    let pod = to_pod(&object.unwrap());
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let mut after = running();
    after["podIP"] = json!("10.1.1.3");
    after["initContainerStatuses"] = json!([container("migrate", waiting)]);
    after["conditions"][0]["status"] = json!("False");
    agent.outbox.submit(says(&pod, after));
    agent.told(pod.pod_ref()).await;
    let there = in_api(&server, "web");
    assert_eq!(condition(&there, "Ready")["status"], "False");
    assert_eq!(there["status"]["podIP"], "10.1.1.3");
    let init = &there["status"]["initContainerStatuses"][0]["state"];
    assert_eq!(init["terminated"]["exitCode"], 0, "it stays as it was");
    agent.cut().await;
}
