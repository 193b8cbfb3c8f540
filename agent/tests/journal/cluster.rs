//! The API server is away for an hour.

use std::time::Duration;

use serde_json::json;
use winddown_apiserver::ApiServer;

use super::bed::{Bed, cluster_parts, pod};
use super::lines::Lines;

const HOUR: Duration = Duration::from_secs(3600);

fn api_pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "main", "image": "x" }] },
    })
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_was_never_there_is_told_in_a_few_lines_an_hour() {
    // The port is taken, so that nobody else gets it, but nobody listens.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = taken.local_addr().unwrap().port();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster":
            { "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "u", "user": { "token": "t" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    let lines = Lines::keep();
    let state = tempfile::tempdir().unwrap();
    let parts = cluster_parts(state.path(), &kubeconfig.to_string()).await;
    let bed = Bed::in_cluster(state, parts);
    bed.run(&[pod("web", 0, 30)]).await;
    tokio::time::sleep(HOUR).await;
    lines.check_calm();
    assert_eq!(lines.with("API server unreachable"), 1, "{}", lines.text());
    assert!(lines.count() <= 12, "{}", lines.text());
    assert!(bed.runtime.runs(pod("web", 0, 30).uid()), "static pods need no API server");
}

#[tokio::test]
async fn an_api_server_that_goes_for_an_hour_is_told_once_and_so_is_its_return() {
    let server = ApiServer::start().await.unwrap();
    let lines = Lines::keep();
    let state = tempfile::tempdir().unwrap();
    let parts = cluster_parts(state.path(), &server.kubeconfig()).await;
    server.apply(api_pod("web")).unwrap();
    server.apply(api_pod("db")).unwrap();
    let bed = Bed::in_cluster(state, parts);
    bed.want(&[pod("static", 0, 30)]);
    let runs = |name: &str| format!("pods/default/{name}");
    let running = |o: &serde_json::Value| o["status"]["phase"] == "Running";
    server
        .until("the pods run", |o| {
            let all = ["web", "db"]
                .iter()
                .all(|name| o.get(&runs(name)).is_some_and(|pod| running(&pod)));
            all.then_some(())
        })
        .await
        .unwrap();

    server.cut_off().await.unwrap();
    let before = lines.count();
    // Everything of this test is in this thread, so that an hour can be skipped.
    tokio::time::pause();
    tokio::time::sleep(HOUR).await;
    // A pod ends, which cannot be told.
    bed.want(&[]);
    tokio::time::sleep(HOUR).await;
    lines.check_calm();
    assert_eq!(lines.with("API server unreachable"), 1, "{}", lines.text());
    assert!(lines.count() - before <= 12, "{}", lines.text());
    tokio::time::resume();

    server.come_back().await.unwrap();
    // The server knows of a watch before the agent has its answer, so the line is waited for.
    lines.until("the API server answers again").await;
    server
        .until("it is asked again, and was heard", |o| {
            let heard = lines.with("the API server answers again") > 0;
            (heard && o.open_watches("pods") > 0).then_some(())
        })
        .await
        .unwrap();
    assert_eq!(lines.with("the API server answers again"), 1, "{}", lines.text());
    // What types look like is for programmers.
    for shape in ["Status {", "Custom {", "Some("] {
        assert_eq!(lines.with(shape), 0, "{}", lines.text());
    }
}
