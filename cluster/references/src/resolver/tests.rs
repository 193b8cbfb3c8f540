//! What a pod leaves on the node, whether it can be resolved or not.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use winddown_apiserver::ApiServer;
use winddown_cluster::events::NodeRef;
use winddown_shared::WallTime;

use super::*;

/// A node, with a Secret `there` on its API server.
struct Node {
    server: ApiServer,
    dir: tempfile::TempDir,
    resolver: Resolver,
}

impl Node {
    fn new() -> Self {
        let server = ApiServer::in_memory().unwrap();
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "there", "namespace": "shop"}, "data": {"k": "eA=="}});
        server.apply(secret).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let config = ResolverConfig::new(dir.path().join("disk"), dir.path().join("memory"));
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let events = Events::unwritten(NodeRef::new("n1"), 10, wall.clone());
        let client = kube::Client::new(server.service(), "default");
        let (resolver, _) = Resolver::new(client, config, events, wall);
        Self { server, dir, resolver }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    async fn prepare(&self, env: &Value, volumes: &Value) -> Result<Pod, PrepareError> {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [{"name": "main", "env": env}], "volumes": volumes},
        });
        self.resolver.prepare(&Pod::new(serde_json::from_value(object).unwrap()).unwrap()).await
    }
}

fn files_below(path: &Path) -> usize {
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_pod_that_waits_for_an_object_takes_no_memory_and_no_disk() {
    let node = Node::new();
    let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]);
    let volumes = json!([{"name": "keys", "secret": {"secretName": "there"}},
        {"name": "info", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]);
    let lacks = node.prepare(&env, &volumes).await.unwrap_err();
    assert!(matches!(lacks, PrepareError::Missing { is_for_volume: false, .. }), "{lacks}");
    assert_eq!([files_below(&node.path("memory")), files_below(&node.path("disk"))], [0, 0]);
    let late = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "late", "namespace": "shop"}, "data": {"k": "eA=="}});
    node.server.apply(late).unwrap();
    node.prepare(&env, &volumes).await.unwrap();
    assert!(node.path("memory/u1/keys/k").exists() && node.path("disk/u1/info/name").exists());
}

#[tokio::test]
async fn a_pod_of_which_a_volume_cannot_be_written_leaves_none_of_the_others() {
    let node = Node::new();
    // Like a full disk, this prevents the second volume from being made.
    std::fs::write(node.path("disk"), "").unwrap();
    let volumes = json!([{"name": "keys", "secret": {"secretName": "there"}},
        {"name": "info", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]);
    node.prepare(&json!([]), &volumes).await.unwrap_err();
    assert_eq!(files_below(&node.path("memory")), 0);
    std::fs::remove_file(node.path("disk")).unwrap();
    node.prepare(&json!([]), &volumes).await.unwrap();
    assert!(node.path("memory/u1/keys/k").exists());
}

#[tokio::test]
async fn pods_that_wait_for_a_thousand_objects_take_a_watch_for_some_of_them() {
    let node = Node::new();
    for number in 0..1000 {
        let key = json!({"name": format!("late-{number}"), "key": "k"});
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": format!("u{number}")},
            "spec": {"containers": [{"name": "main", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": key}}]}]},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        node.resolver.prepare(&pod).await.unwrap_err();
    }
    assert_eq!(node.resolver.counts().watched, 256);
}
