//! A shutdown with the API cut off, and the boot after it.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use winddown_apiserver::ApiServer;
use winddown_shared::Pod;

use crate::status::world::*;

async fn three_pods(server: &ApiServer) -> Vec<Pod> {
    ["a", "b", "c"].map(|name| make(server, name, json!({ "phase": "Running" }))).into()
}

async fn all_failed(server: &ApiServer) {
    server
        .within(LONG, "all have failed", |o| {
            let failed = |name| {
                let pod = o.get(&format!("pods/default/{name}"));
                pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")
            };
            ["a", "b", "c"].into_iter().all(failed).then_some(())
        })
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        let pod = in_api(server, name);
        assert_eq!(pod["status"]["reason"], "Terminated");
        assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "TerminationByKubelet");
        assert_eq!(condition(&pod, "Ready")["status"], "False");
    }
}

fn files(home: &TempDir) -> usize {
    let files = std::fs::read_dir(home.path()).unwrap();
    files
        .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "json"))
        .count()
}

/// Files go in their own time.
async fn until_empty(home: &TempDir) {
    for _ in 0..3000 {
        if files(home) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} records are left", files(home));
}

#[tokio::test]
async fn cut_off_before_the_shutdown_the_statuses_arrive_after_the_boot() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let pods = three_pods(&server).await;
    let agent = Agent::start(&server, Some(home.path())).await;
    for pod in &pods {
        agent.outbox.api_saw(pod);
        agent.outbox.submit(says(pod, running()));
    }
    assert_eq!(agent.flush(LONG).await, [""; 0]);

    server.cut_off().await.unwrap();
    for pod in &pods {
        agent.outbox.submit(ended(pod));
    }
    assert_eq!(agent.flush(Duration::from_secs(2)).await, ["a", "b", "c"]);
    assert_eq!(files(&home), 3);
    agent.cut().await;
    server.come_back().await.unwrap();
    server.forget_requests();

    let agent = Agent::start(&server, Some(home.path())).await;
    all_failed(&server).await;
    until_empty(&home).await;
    assert_eq!(server.count("patch", "pods/status"), 3, "each of them once");
    assert_eq!(agent.outbox.stats().unacknowledged, 0);
    agent.cut().await;
    let agent = Agent::start(&server, Some(home.path())).await;
    assert_eq!(agent.flush(Duration::from_millis(500)).await, [""; 0]);
    assert_eq!(server.count("patch", "pods/status"), 3);
    agent.cut().await;
}

#[tokio::test]
async fn cut_off_in_the_middle_the_others_arrive_after_the_boot() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let pods = three_pods(&server).await;
    let agent = Agent::start(&server, Some(home.path())).await;
    agent.outbox.submit(ended(&pods[0]));
    agent.told(pods[0].label()).await;
    server.cut_off().await.unwrap();
    agent.outbox.submit(ended(&pods[1]));
    agent.outbox.submit(ended(&pods[2]));
    assert_eq!(agent.flush(Duration::from_secs(2)).await, ["b", "c"]);
    agent.cut().await;
    server.come_back().await.unwrap();
    let agent = Agent::start(&server, Some(home.path())).await;
    all_failed(&server).await;
    until_empty(&home).await;
    assert_eq!(server.count("patch", "pods/status"), 3);
    agent.cut().await;
}

#[tokio::test]
async fn a_server_that_comes_back_within_the_time_is_told_within_the_time() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let pods = three_pods(&server).await;
    let agent = Agent::start(&server, Some(home.path())).await;
    server.cut_off().await.unwrap();
    for pod in &pods {
        agent.outbox.submit(ended(pod));
    }
    let back = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.come_back().await.unwrap();
    };
    let (left, ()) = tokio::join!(agent.flush(LONG), back);
    assert_eq!(left, [""; 0]);
    all_failed(&server).await;
    until_empty(&home).await;
    agent.cut().await;
}

/// Packets are swallowed: nothing is refused and nothing answers.
#[tokio::test]
async fn a_server_that_falls_silent_does_not_hold_up_the_end() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let pods = three_pods(&server).await;
    let agent = Agent::start(&server, Some(home.path())).await;
    agent.outbox.submit(says(&pods[0], running()));
    agent.told(pods[0].label()).await;
    server.set_silent(true);
    for pod in &pods {
        agent.outbox.submit(ended(pod));
    }
    assert_eq!(agent.flush(Duration::from_secs(2)).await, ["a", "b", "c"]);
    agent.cut().await;
    server.set_silent(false);
    let agent = Agent::start(&server, Some(home.path())).await;
    all_failed(&server).await;
    agent.cut().await;
}

/// A pod is deleted and one of its name is made while the node is down.
#[tokio::test]
async fn what_has_changed_while_the_node_was_down_is_not_written_to() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let pods = three_pods(&server).await;
    let agent = Agent::start(&server, Some(home.path())).await;
    server.cut_off().await.unwrap();
    for pod in &pods {
        agent.outbox.submit(ended(pod));
    }
    agent.flush(Duration::from_secs(2)).await;
    agent.cut().await;
    for name in ["a", "b"] {
        server.remove(&format!("pods/default/{name}"));
    }
    make(&server, "b", json!({ "phase": "Running" }));
    server.come_back().await.unwrap();
    let agent = Agent::start(&server, Some(home.path())).await;
    until_empty(&home).await;
    assert_eq!(in_api(&server, "b")["status"]["phase"], "Running");
    assert_eq!(in_api(&server, "c")["status"]["phase"], "Failed");
    assert!(agent.outbox.final_status(pods[2].uid()).is_some());
    assert_eq!(agent.outbox.final_status(pods[0].uid()), None);
    agent.cut().await;
}
