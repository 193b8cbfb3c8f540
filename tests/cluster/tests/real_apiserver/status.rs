//! Statuses as a real server takes them: it fills in what was left out, and knows pods by their UID.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use winddown_cluster::pods::StatusSide;
use winddown_cluster::status::{Outbox, OutboxConfig, StatusUpdate};
use winddown_shared::Pod;

use super::RealApi;
use super::server::wall;

const LONG: Duration = Duration::from_secs(60);

fn outbox(directory: Option<&Path>) -> (Outbox, winddown_cluster::status::OutboxDriver) {
    let directory = directory.map(Path::to_owned);
    Outbox::new(&OutboxConfig { directory, wall: wall(), ..OutboxConfig::default() })
}

fn said(pod: &api::Pod, phase: &str, state: &Value) -> StatusUpdate {
    let status = json!({
        "phase": phase,
        "conditions": [{"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }}],
        "containerStatuses": [{
            "name": "a", "image": "x", "imageID": "", "restartCount": 0,
            "ready": phase == "Running", "state": state,
        }],
    });
    StatusUpdate {
        pod: Pod::new(pod.clone()).unwrap().pod_ref().clone(),
        status: Arc::new(serde_json::from_value(status).unwrap()),
        last: phase != "Running",
        generation: pod.metadata.generation,
    }
}

fn runs(pod: &api::Pod) -> StatusUpdate {
    said(pod, "Running", &json!({"running": {"startedAt": "2026-01-01T00:00:00.5Z"}}))
}

fn failed(pod: &api::Pod) -> StatusUpdate {
    said(pod, "Failed", &json!({"terminated": {"exitCode": 3}}))
}

async fn told(outbox: &Outbox, pod: &api::Pod) {
    let uid = Pod::new(pod.clone()).unwrap().uid().clone();
    if timeout(LONG, outbox.delivered(&uid)).await.is_err() {
        panic!("not told within {LONG:?}: {:?}", outbox.stats());
    }
}

#[tokio::test]
async fn each_status_is_one_request_and_the_same_again_and_a_foreign_condition_are_none() {
    let Some(server) = RealApi::get().await else { return };
    let space = "status-once";
    server.namespace(space).await;
    let pod = server.pod(space, "web", space).await;
    let pods: Api<api::Pod> = Api::namespaced(server.admin().await, space);
    let (outbox, driver) = outbox(None);
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(driver.run(server.node(space).await.client(), stop));

    outbox.submit(runs(&pod));
    told(&outbox, &pod).await;
    assert_eq!(outbox.stats().sent, 1);
    let theirs =
        json!({"status": {"conditions": [{"type": "example.com/theirs", "status": "True"}]}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Strategic(theirs)).await.unwrap();
    let now = pods.get("web").await.unwrap();
    outbox.api_saw(&Pod::new(now).unwrap());
    outbox.submit(runs(&pod));
    told(&outbox, &pod).await;
    assert_eq!(outbox.stats().sent, 1, "the same again");
    outbox.submit(failed(&pod));
    told(&outbox, &pod).await;
    assert_eq!(outbox.stats().sent, 2);

    let status = pods.get("web").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let kept = status.conditions.unwrap().iter().any(|one| one.type_ == "example.com/theirs");
    assert!(kept, "what others say stays");
    server.remove(space, space).await;
}

#[tokio::test]
async fn last_words_of_pods_that_are_gone_are_dropped_and_those_of_others_arrive() {
    let Some(server) = RealApi::get().await else { return };
    let space = "status-left";
    server.namespace(space).await;
    let pods: Api<api::Pod> = Api::namespaced(server.admin().await, space);
    let mut ended = Vec::new();
    for name in ["there", "gone", "anew", "elsewhere"] {
        ended.push(server.pod(space, name, space).await);
    }
    // An agent that no server answers, until it ends.
    let spool = tempfile::tempdir().unwrap();
    let (first, driver) = outbox(Some(spool.path()));
    let stop = CancellationToken::new();
    let silent = kube::Config::new("https://127.0.0.1:9".parse().unwrap());
    let sending = tokio::spawn(driver.run(kube::Client::try_from(silent).unwrap(), stop.clone()));
    for pod in &ended {
        first.submit(failed(pod));
    }
    let left = first.flush(tokio::time::Instant::now() + Duration::from_secs(5)).await;
    assert_eq!((left.len(), first.stats().spool.files), (4, 4));
    stop.cancel();
    sending.await.unwrap();

    for name in ["gone", "anew", "elsewhere"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    server.pod(space, "anew", space).await;
    server.pod(space, "elsewhere", "status-another").await;
    let (second, driver) = outbox(Some(spool.path()));
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(driver.run(server.node(space).await.client(), stop));
    second.recalled().await;
    let empty = async {
        while second.stats().unacknowledged > 0 || second.stats().spool.files > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LONG, empty).await.is_ok(), "{:?}", second.stats());
    let phase = async |name| pods.get(name).await.unwrap().status.unwrap().phase.unwrap();
    assert_eq!(phase("there").await, "Failed");
    assert_eq!(phase("anew").await, "Pending");
    assert_eq!(phase("elsewhere").await, "Pending");
    server.remove(space, space).await;
}
