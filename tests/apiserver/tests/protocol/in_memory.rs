//! The server without sockets.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower_service::Service as _;
use winddown_apiserver::ApiServer;

/// The code and the body of the answer; `None` if the connection broke.
async fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let body = Full::new(Bytes::from(body.to_string()));
    let request = Request::builder().method(method).uri(path).body(body).unwrap();
    let answer = server.service().call(request).await.ok()?;
    let (code, body) = (answer.status().as_u16(), answer.into_body());
    Some((code, serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn without_sockets_it_keeps_objects_follows_the_clock_and_can_be_cut_off() {
    let server = ApiServer::in_memory().unwrap();
    let (empty, node) = (server.version(), json!({"metadata": {"name": "n1"}}));
    let (clock, nodes, n1) = (server.clock(), "/api/v1/nodes", "/api/v1/nodes/n1");
    let began = clock();
    sleep(Duration::from_secs(3600)).await;
    assert!(clock().duration_since(began).as_secs() >= 3600);
    let (code, created) = ask(&server, "POST", nodes, &node).await.unwrap();
    let second = clock().to_string()[..19].to_owned();
    assert_eq!(code, 201);
    assert!(created["metadata"]["creationTimestamp"].as_str().unwrap().starts_with(&second));
    assert_eq!(server.requests()[0].user, "test-admin");

    server.cut_off().await.unwrap();
    assert_eq!(ask(&server, "GET", n1, &Value::Null).await, None);
    server.come_back().await.unwrap();
    assert_eq!(ask(&server, "GET", n1, &Value::Null).await, Some((200, created)));

    server.set_silent(true);
    let silent = timeout(Duration::from_secs(60), ask(&server, "GET", n1, &Value::Null)).await;
    assert!(silent.is_err());
    server.set_silent(false);

    server.restore(empty);
    assert_eq!(ask(&server, "GET", n1, &Value::Null).await.unwrap().0, 404);
    assert_eq!(server.version(), empty);
}
