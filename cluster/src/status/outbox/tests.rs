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
use winddown_shared::{Pod, PodLabel, PodUid, WallClock, WallTime};

use super::{Outbox, OutboxConfig, OutboxDriver};
use crate::pods::StatusSide;
use crate::status::StatusUpdate;

mod disks;
mod fake_api;
mod foreign;
mod order;
mod outages;

use fake_api::FakeApi;

/// A running outbox.
struct Agent {
    outbox: Outbox,
    cancel: CancellationToken,
    driver: JoinHandle<()>,
}

impl Agent {
    fn start(api: &FakeApi, directory: Option<&Path>) -> Self {
        Self::of(api, Outbox::new(&config(directory)))
    }

    fn of(api: &FakeApi, (outbox, driver): (Outbox, OutboxDriver)) -> Self {
        let cancel = CancellationToken::new();
        let driver = tokio::spawn(driver.run_on(api.clone(), cancel.clone()));
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
fn label(name: &str) -> PodLabel {
    PodLabel { namespace: "default".into(), name: name.into(), uid: PodUid::new(name) }
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

fn pod(name: &str, version: u64, status: &Value) -> Pod {
    let object = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name,
            "resourceVersion": version.to_string() },
        "spec": { "containers": [{ "name": "main" }] },
        "status": status,
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}
