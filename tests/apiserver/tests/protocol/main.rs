//! What the server says it does, seen by a client that knows HTTP and nothing else.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod access;
mod client;
mod deletion;
mod eviction;
mod faults;
mod in_memory;
mod lists;
mod program;
mod tokens;
mod watches;
mod writes;

use serde_json::{Value, json};
use winddown_apiserver::ApiServer;

use self::client::Client;

/// A server and its administrator's client.
async fn started() -> (ApiServer, Client) {
    let server = ApiServer::start().await.unwrap();
    let client = Client::of(&server);
    (server, client)
}

/// A pod that is bound to a node.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": "n1", "terminationGracePeriodSeconds": 20,
            "containers": [{"name": "a", "image": "x"}],
        },
    })
}

const PODS: &str = "/api/v1/namespaces/default/pods";
