//! What is left in the API of pods that this node ended.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::KubePods;
use winddown_apiserver::{ApiServer, Fault};
use winddown_cluster::after_boot::{AfterBoot, AfterBootPolicy, TerminatedPods};
use winddown_shared::{WallClock, WallTime};

use crate::status::world::*;

fn ended_in(boot: &str, home: &TempDir) -> TerminatedPods {
    TerminatedPods::new(home.path(), Some(boot.into()), WallClock::fixed(WallTime::UNIX_EPOCH))
}

fn failed(reason: &str) -> Value {
    json!({ "phase": "Failed", "conditions": [
        { "type": "DisruptionTarget", "status": "True", "reason": reason }] })
}

/// The pods of the scenario: all of them were asked to end by this node before the boot.
async fn before_the_boot(server: &ApiServer, home: &TempDir) {
    let ours = failed("TerminationByKubelet");
    let mut done = ours.clone();
    done["phase"] = json!("Succeeded");
    let pods = [
        make(server, "ours", ours.clone()),
        make(server, "done", done),
        make(server, "theirs", failed("DeletionByTaintManager")),
        make(server, "late", json!({ "phase": "Running" })),
        make(server, "again", ours.clone()),
    ];
    make(server, "never-asked", ours);
    let ended = ended_in("boot-1", home);
    for pod in &pods {
        ended.note(pod.pod_ref(), "shutdown");
    }
    assert!(ended.flush(Instant::now() + LONG).await);
    server.remove("pods/default/again");
    make(server, "again", failed("TerminationByKubelet"));
}

async fn gone(server: &ApiServer, name: &str) {
    server
        .within(LONG, "removed", |o| o.get(&format!("pods/default/{name}")).is_none().then_some(()))
        .await
        .unwrap();
}

#[tokio::test]
async fn only_failed_pods_that_this_node_ended_are_removed_and_not_before_it_is_ready() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    before_the_boot(&server, &home).await;
    server.fault(Fault::on("delete", "pods").times(1).status(503));
    let ended = ended_in("boot-2", &home);
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let driver = AfterBoot::new(ended.clone(), AfterBootPolicy::Delete, wall);
    let (ready, is_ready) = watch::channel(false);
    let cancel = CancellationToken::new();
    let run = tokio::spawn(driver.run(
        KubePods::new(client(&server).await, "node-1".to_owned()),
        is_ready,
        cancel.clone(),
    ));
    tokio::task::yield_now().await;
    assert_eq!(server.count("*", "pods"), 0);
    ready.send_replace(true);
    gone(&server, "ours").await;
    // Its last status has come in the meantime.
    server
        .apply(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "late", "namespace": "default" },
        "status": failed("TerminationByKubelet") }))
        .unwrap();
    gone(&server, "late").await;
    for name in ["done", "theirs", "again", "never-asked"] {
        in_api(&server, name);
    }
    for _ in 0..500 {
        if ended.all().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ended.all(), [], "nothing is left to be done");
    assert!(ended.flush(Instant::now() + LONG).await);
    cancel.cancel();
    run.await.unwrap();
    let next = ended_in("boot-3", &home);
    next.load().await.unwrap();
    assert_eq!(next.all(), []);
}
