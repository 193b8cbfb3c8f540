//! Outboxes with API servers of all kinds, on a paused clock.
#![allow(clippy::needless_pass_by_value, reason = "JSON reads better where it is used")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::{ApiServer, Fault, Harm, Request};
use winddown_shared::{Pod, PodRef, PodUid, WallClock, WallTime};

use super::{Outbox, OutboxConfig, OutboxDriver};
use crate::pods::StatusSide;
use crate::status::StatusUpdate;

mod disks;
mod foreign;
mod idle;
mod order;
mod outages;

/// A running outbox.
struct Agent {
    outbox: Outbox,
    cancel: CancellationToken,
    driver: JoinHandle<()>,
}

impl Agent {
    fn start(server: &ApiServer, directory: Option<&Path>) -> Self {
        Self::of(server, Outbox::new(&config(directory)))
    }

    fn of(server: &ApiServer, (outbox, driver): (Outbox, OutboxDriver)) -> Self {
        let cancel = CancellationToken::new();
        let client = kube::Client::new(server.service(), "default");
        let driver = tokio::spawn(driver.run(client, cancel.clone()));
        Self { outbox, cancel, driver }
    }

    /// Cuts the power: nothing is finished.
    async fn cut(self) {
        self.cancel.cancel();
        self.driver.await.unwrap();
    }

    async fn delivered(&self, name: &str) {
        let uid = PodUid::new(name);
        let told = self.outbox.delivered(&uid);
        tokio::time::timeout(Duration::from_secs(600), told).await.expect("told in time");
    }

    async fn flush(&self, within: Duration) -> Vec<String> {
        let left = self.outbox.flush(Instant::now() + within).await;
        let mut left: Vec<String> = left.iter().map(|pod| pod.name.to_string()).collect();
        left.sort();
        left
    }
}

fn config(directory: Option<&Path>) -> OutboxConfig {
    OutboxConfig {
        directory: directory.map(Into::into),
        wall: WallClock::fixed(WallTime::from_second(1000).unwrap()),
        ..OutboxConfig::default()
    }
}

/// A pod's name is its UID.
fn label(name: &str) -> PodRef {
    PodRef { namespace: "default".into(), name: name.into(), uid: PodUid::new(name) }
}

fn status(status: Value) -> Arc<api::PodStatus> {
    Arc::new(serde_json::from_value(status).unwrap())
}

fn says(name: &str, said: Value) -> StatusUpdate {
    StatusUpdate { pod: label(name), status: status(said), last: false, generation: None }
}

fn running(name: &str) -> StatusUpdate {
    says(name, json!({ "phase": "Running" }))
}

fn ended(name: &str) -> StatusUpdate {
    let said = json!({ "phase": "Failed", "reason": "Terminated" });
    StatusUpdate { last: true, ..says(name, said) }
}

/// An API server with these pods.
fn with(pods: &[&str]) -> ApiServer {
    let server = ApiServer::in_memory().unwrap();
    for name in pods {
        put(&server, name, json!({ "phase": "Pending" }));
    }
    server
}

/// The same, and an outbox without a directory.
fn started(pods: &[&str]) -> (ApiServer, Agent) {
    let server = with(pods);
    let agent = Agent::start(&server, None);
    (server, agent)
}

/// Creates the pod or changes its status, as another client would. Its UID is its name.
fn put(server: &ApiServer, name: &str, status: Value) -> Pod {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "uid": name },
        "spec": { "nodeName": "n1", "containers": [{ "name": "main" }] }, "status": status,
    });
    to_pod(&server.apply(object).unwrap())
}

/// Deletes the pod, and creates another one with its name.
fn replace(server: &ApiServer, name: &str) {
    server.remove(&path(name));
    put(server, name, json!({ "phase": "Pending" }));
    server.patch(&path(name), &json!({ "metadata": { "uid": format!("{name}-again") } })).unwrap();
}

fn path(name: &str) -> String {
    format!("pods/default/{name}")
}

fn to_pod(object: &Value) -> Pod {
    Pod::new(serde_json::from_value(object.clone()).unwrap()).unwrap()
}

fn there(server: &ApiServer, name: &str) -> Pod {
    to_pod(&server.get(&path(name)).unwrap())
}

fn phase(server: &ApiServer, name: &str) -> String {
    there(server, name).status.as_ref().unwrap().phase.clone().unwrap()
}

/// No request is answered until the fault is lifted.
fn down() -> Fault {
    Fault::on("*", "*").reset()
}

/// The patches that were accepted.
fn patches(server: &ApiServer) -> Vec<Request> {
    let all = server.requests().into_iter();
    all.filter(|one| one.is("patch", "pods/status") && one.code == Some(200)).collect()
}

/// Names of the pods in the order in which they were patched.
fn patched(server: &ApiServer) -> Vec<String> {
    patches(server).into_iter().map(|patch| patch.right.name).collect()
}
