//! An API server and an agent's outbox.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
pub(crate) use winddown_cluster::pods::StatusSide;
use winddown_cluster::status::{Outbox, OutboxConfig, StatusUpdate};
use winddown_shared::{Pod, PodRef, WallClock, WallTime};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// An outbox at work. Dropping it is the power going.
pub(crate) struct Agent {
    pub(crate) outbox: Outbox,
    cancel: CancellationToken,
    driver: JoinHandle<()>,
}

impl Agent {
    pub(crate) async fn start(server: &ApiServer, directory: Option<&Path>) -> Self {
        let config = OutboxConfig {
            directory: directory.map(Into::into),
            request_deadline: Duration::from_secs(2),
            wall: WallClock::fixed(WallTime::from_second(1_700_000_000).unwrap()),
            ..OutboxConfig::default()
        };
        let (outbox, driver) = Outbox::new(&config);
        let cancel = CancellationToken::new();
        let driver = tokio::spawn(driver.run(client(server).await, cancel.clone()));
        Self { outbox, cancel, driver }
    }

    pub(crate) async fn told(&self, pod: &PodRef) {
        timeout(LONG, self.outbox.delivered(&pod.uid)).await.expect("told in time");
    }

    pub(crate) async fn flush(&self, within: Duration) -> Vec<String> {
        let left = self.outbox.flush(Instant::now() + within).await;
        let mut left: Vec<String> = left.iter().map(|pod| pod.name.to_string()).collect();
        left.sort();
        left
    }

    /// The power goes.
    pub(crate) async fn cut(self) {
        self.cancel.cancel();
        self.driver.await.unwrap();
    }
}

pub(crate) async fn client(server: &ApiServer) -> kube::Client {
    crate::connect::client(&server.kubeconfig()).await
}

/// Somebody makes a pod that is bound to this node.
pub(crate) fn make(server: &ApiServer, name: &str, status: Value) -> Pod {
    let object = server
        .apply(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "main", "image": "i" }] },
            "status": status,
        }))
        .unwrap();
    to_pod(&object)
}

pub(crate) fn to_pod(object: &Arc<Value>) -> Pod {
    Pod::new(serde_json::from_value(Value::clone(object)).unwrap()).unwrap()
}

pub(crate) fn in_api(server: &ApiServer, name: &str) -> Arc<Value> {
    server.get(&format!("pods/default/{name}")).expect("the pod is there")
}

pub(crate) fn says(pod: &Pod, status: Value) -> StatusUpdate {
    StatusUpdate {
        pod: pod.pod_ref().clone(),
        status: Arc::new(serde_json::from_value(status).unwrap()),
        last: false,
        generation: pod.metadata.generation,
    }
}

pub(crate) fn running() -> Value {
    json!({
        "phase": "Running", "startTime": "2023-11-14T22:00:00Z", "podIP": "10.1.1.2",
        "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:00:01Z" },
            { "type": "ContainersReady", "status": "True", "lastTransitionTime": "2023-11-14T22:00:01Z" },
        ],
        "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
            "state": { "running": { "startedAt": "2023-11-14T22:00:00Z" } } }],
    })
}

pub(crate) fn ended(pod: &Pod) -> StatusUpdate {
    let status = json!({
        "phase": "Failed", "reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown.",
        "startTime": "2023-11-14T22:00:00Z",
        "conditions": [
            { "type": "Ready", "status": "False", "reason": "PodFailed" },
            { "type": "ContainersReady", "status": "False", "reason": "PodFailed" },
            { "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet" },
        ],
        "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }],
    });
    StatusUpdate { last: true, ..says(pod, status) }
}

pub(crate) fn condition<'a>(pod: &'a Value, type_: &str) -> &'a Value {
    let all = pod["status"]["conditions"].as_array().unwrap();
    all.iter().find(|c| c["type"] == type_).unwrap_or(&Value::Null)
}
