//! Mirror pods against an API server that restricts what a node may do.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::{ApiServer, Fault};
use winddown_cluster::mirror::Mirrors;
use winddown_cluster::pods::MirrorSide;
use winddown_cluster::status::Follow;
use winddown_shared::status::StatusStore;
use winddown_shared::{DesiredPods, Pod, WallClock, WallTime};

use crate::status::world::*;

struct Node {
    server: ApiServer,
    agent: Agent,
    mirrors: Mirrors,
    store: StatusStore,
    desired: watch::Sender<Option<Arc<DesiredPods>>>,
    cancel: CancellationToken,
}

impl Node {
    async fn start() -> Self {
        let server = ApiServer::start().await.unwrap();
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-1" } });
        let node = server.apply(node).unwrap();
        let agent = Agent::start(&server, None).await;
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let (mirrors, driver) = Mirrors::new("node-1", agent.outbox.clone(), wall);
        mirrors.set_node_uid(Some(node["metadata"]["uid"].as_str().unwrap().into()));
        mirrors.relisted(&[]);
        let store = StatusStore::default();
        let (desired, wanted) = watch::channel(None);
        let cancel = CancellationToken::new();
        tokio::spawn(driver.run(client(&server).await, wanted, cancel.clone()));
        let follow = Follow::new(store.clone(), agent.outbox.clone()).with_mirrors(mirrors.clone());
        tokio::spawn(follow.run(cancel.clone()));
        Self { server, agent, mirrors, store, desired, cancel }
    }

    fn want(&self, pods: &[Pod]) {
        let pods = DesiredPods::all(pods.to_vec());
        self.desired.send_replace(Some(Arc::new(pods)));
    }

    async fn mirror(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Arc<Value> {
        let fits = |o: &winddown_apiserver::Objects<'_>| {
            o.get("pods/kube-system/web-node-1").filter(|pod| fits(pod))
        };
        self.server.within(LONG, what, fits).await.unwrap()
    }

    async fn no_mirror(&self) {
        let gone = |o: &winddown_apiserver::Objects<'_>| {
            o.get("pods/kube-system/web-node-1").is_none().then_some(())
        };
        self.server.within(LONG, "the mirror is gone", gone).await.unwrap();
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.agent.cut().await;
    }
}

fn web(hash: &str, spec: Value) -> Pod {
    let object = json!({
        "metadata": {
            "name": "web-node-1", "namespace": "kube-system", "uid": hash,
            "annotations": {
                "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hash },
        },
        "spec": spec,
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn plain() -> Value {
    json!({ "containers": [{ "name": "main", "image": "i" }] })
}

fn hash(mirror: &Value) -> &Value {
    &mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
}

#[tokio::test]
async fn a_static_pod_is_shown_with_its_status_made_anew_and_gone_with_it() {
    let node = Node::start().await;
    let pod = web("h1", plain());
    node.store.set(pod.clone(), serde_json::from_value(running()).unwrap());
    node.want(std::slice::from_ref(&pod));
    let first = node.mirror("its status is there", |m| m["status"]["phase"] == "Running").await;
    assert_eq!(hash(&first), "h1");
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");

    // Somebody deletes it; the watch of the pod controller tells of it.
    let uid = first["metadata"]["uid"].clone();
    node.server.remove("pods/kube-system/web-node-1");
    node.mirrors.gone(to_pod(&first).uid());
    let second = node
        .mirror("another one, with the status", |m| {
            m["metadata"]["uid"] != uid && m["status"]["phase"] == "Running"
        })
        .await;
    assert_eq!(hash(&second), "h1");

    // Its manifest changes.
    let changed = web("h2", plain());
    node.store.set(changed.clone(), serde_json::from_value(running()).unwrap());
    node.want(&[changed]);
    node.mirror("of the new manifest", |m| *hash(m) == "h2" && m["status"]["phase"] == "Running")
        .await;
    node.want(&[]);
    node.no_mirror().await;
    node.stop().await;
}

#[tokio::test]
async fn a_server_that_fails_or_loses_its_answer_gets_one_mirror_in_the_end() {
    let node = Node::start().await;
    node.server.fault(Fault::on("create", "pods").times(2).status(500));
    node.server.fault(Fault::on("create", "pods").times(1).lose_answer());
    node.want(&[web("h1", plain())]);
    node.mirror("there", |_| true).await;
    for _ in 0..500 {
        if node.mirrors.count() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.mirrors.count(), 1);
    assert_eq!(node.server.list("pods/kube-system").len(), 1);
    node.stop().await;
}
