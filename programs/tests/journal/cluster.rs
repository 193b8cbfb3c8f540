//! The API server is unreachable for an hour.

use std::time::Duration;

use serde_json::json;
use winddown_apiserver::ApiServer;

use super::lines::Lines;
use crate::metrics::bed::{Bed, cluster_parts, pod};

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
    // The port is bound, so that nothing else can use it, but nothing listens on it.
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
    // The whole test runs in this thread, so an hour can be skipped.
    tokio::time::pause();
    tokio::time::sleep(HOUR).await;
    // A pod terminates, which cannot be reported.
    bed.want(&[]);
    tokio::time::sleep(HOUR).await;
    lines.check_calm();
    assert_eq!(lines.with("API server unreachable"), 1, "{}", lines.text());
    assert!(lines.count() - before <= 12, "{}", lines.text());
    tokio::time::resume();

    server.come_back().await.unwrap();
    // The server sees a watch before the agent has its answer, so wait for the line.
    lines.until("the API server answers again").await;
    server
        .until("it is asked again, and was heard", |o| {
            let heard = lines.with("the API server answers again") > 0;
            (heard && o.open_watches("pods") > 0).then_some(())
        })
        .await
        .unwrap();
    assert_eq!(lines.with("the API server answers again"), 1, "{}", lines.text());
    // The Debug format of types is for programmers.
    for shape in ["Status {", "Custom {", "Some("] {
        assert_eq!(lines.with(shape), 0, "{}", lines.text());
    }
}

#[tokio::test]
async fn an_api_server_that_is_not_verified_is_warned_of_once() {
    let lines = Lines::keep();
    let state = tempfile::tempdir().unwrap();
    let kubeconfig = |skip: bool| {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster":
                { "server": "https://127.0.0.1:1", "insecure-skip-tls-verify": skip } }],
            "users": [{ "name": "u", "user": { "token": "t" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
        .to_string()
    };
    let parts = cluster_parts(state.path(), &kubeconfig(false)).await;
    assert!(parts.connection.verifies_server());
    assert_eq!(lines.with("insecure-skip-tls-verify"), 0, "{}", lines.text());
    let parts = cluster_parts(state.path(), &kubeconfig(true)).await;
    assert!(!parts.connection.verifies_server());
    assert_eq!(lines.with("insecure-skip-tls-verify"), 1, "{}", lines.text());
}

/// Secrets in a variable, in a volume, and next to an error.
#[tokio::test]
async fn secrets_of_the_api_are_in_no_line_of_the_log_at_any_level() {
    const SECRET: &str = "271828182845904523536";
    let server = ApiServer::start().await.unwrap();
    let lines = Lines::keep_all();
    let state = tempfile::tempdir().unwrap();
    let volumes = state.path().join("volumes");
    let parts = cluster_parts(state.path(), &server.kubeconfig()).await;
    server
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "default" },
            "data": { "p": base64(SECRET) },
        }))
        .unwrap();
    let mut pod = api_pod("web");
    let reference = json!({ "secretKeyRef": { "name": "s", "key": "p" } });
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "P", "valueFrom": reference }]);
    pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "s" } }]);
    server.apply(pod).unwrap();
    let mut broken = api_pod("broken");
    let missing = json!({ "secretKeyRef": { "name": "s", "key": "none" } });
    broken["spec"]["containers"][0]["env"] = json!([
        { "name": "P", "valueFrom": reference },
        { "name": "Q", "value": "$(P)" },
        { "name": "R", "valueFrom": missing },
    ]);
    server.apply(broken).unwrap();
    let bed = Bed::in_cluster(state, parts);
    bed.want(&[]);
    server
        .until("the pod runs", |o| {
            let web = o.get("pods/default/web")?;
            (web["status"]["phase"] == "Running").then_some(())
        })
        .await
        .unwrap();
    lines.until("broken").await;
    assert!(holds(&volumes, SECRET), "it was there to be told of");
    let text = lines.text();
    assert!(text.contains("TRACE") || lines.count() > 20, "everything is kept: {text}");
    for secret in [SECRET, &base64(SECRET)] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).unwrap().as_str().unwrap().to_owned()
}

/// Whether a file below `directory` has this text.
fn holds(directory: &std::path::Path, text: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => holds(&path, text),
        false => std::fs::read_to_string(path).is_ok_and(|found| found.contains(text)),
    })
}
