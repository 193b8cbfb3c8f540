//! One scenario for each part that talks to the API server, and the rights it used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_api_client::ApiReviews;
use winddown_api_client::node_pods::KubePods;
use winddown_apiserver::ApiServer;
use winddown_cluster::after_boot::{AfterBoot, AfterBootPolicy, TerminatedPods};
use winddown_cluster::events::{EventDraft, Events, NodeRef, Subject};
use winddown_cluster::mirror::Mirrors;
use winddown_cluster::node::{NodeController, NodeFacts, NodeSettings};
use winddown_cluster::pods::MirrorSide as _;
use winddown_shared::{DesiredPods, Grace, Pod, Reviews, Runtime, WallClock, WallTime};

use super::compare::Right;
use crate::companion::scene;
use crate::node::harness as node;
use crate::pods::harness as pods;
use crate::resolve::bed::{self as resolve, Bed};
use crate::status::world as status;

/// What was used of this server.
fn used(server: &ApiServer) -> BTreeSet<Right> {
    let right = |request: winddown_apiserver::Request| {
        let right = request.right;
        Right::new(&right.verb, &right.group, &right.resource_and_sub(), &right.namespace)
    };
    // What the kubelet does is the kubelet's right.
    let ours = server.requests().into_iter().filter(|request| request.user != scene::KUBELET);
    // Whoever is authenticated may discover what is served.
    ours.filter(|request| !request.right.resource.starts_with('/')).map(right).collect()
}

fn wall() -> WallClock {
    WallClock::fixed(WallTime::from_second(1_800_000_000).unwrap())
}

/// A node that registers, holds its lease, goes down and comes back.
pub(crate) async fn node() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    let agent = node::Agent::ready(&server).await;
    let first = server.until("the lease", |all| all.get(node::LEASE)).await.unwrap();
    let renewed = |lease: Arc<Value>| (lease != first).then_some(());
    server.until("the lease is renewed", |all| renewed(all.get(node::LEASE)?)).await.unwrap();
    agent.handle.set_shutting_down(true);
    node::until(&server, "the cordon", |node| node["spec"]["unschedulable"] == true).await;
    agent.stop().await;
    used(&server)
}

/// A node API that is asked something.
pub(crate) async fn node_api() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    let reviews = ApiReviews::new(status::client(&server).await);
    reviews.token("t".to_owned()).await.unwrap();
    reviews.access(SubjectAccessReviewSpec::default()).await.unwrap();
    used(&server)
}

/// A node that was deleted and comes back, and may not delete the lease of the one before.
pub(crate) async fn node_anew() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    server.deny("delete", "leases");
    let agent = node::Agent::start_with(&server, node::facts(), node::always()).await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let lease = server.until("the lease", |all| all.get(node::LEASE)).await.unwrap();
    server.remove(node::NODE);
    let owner = |lease: &Value| lease["metadata"]["ownerReferences"][0]["uid"].clone();
    let taken = |now: Arc<Value>| {
        (owner(&now) != owner(&lease) && now["metadata"]["uid"] == lease["metadata"]["uid"])
            .then_some(())
    };
    server.until("the lease is the new node's", |all| taken(all.get(node::LEASE)?)).await.unwrap();
    agent.stop().await;
    used(&server)
}

/// A pod that comes, runs and is deleted.
pub(crate) async fn pods() -> BTreeSet<Right> {
    let cluster = pods::Cluster::new().await;
    let running = cluster.start().await.ready().await;
    cluster.server.apply(pods::pod("a")).unwrap();
    cluster.until_phase("a", "Running").await;
    cluster.server.delete(&pods::path("a"), Some(600)).unwrap();
    cluster.until_gone("a").await;
    cluster.until_given(0).await;
    running.stop().await;
    used(&cluster.server)
}

/// A pod that names everything a pod can name, some of which comes late.
pub(crate) async fn references() -> BTreeSet<Right> {
    let bed = Bed::new().await;
    let late = [("configMapKeyRef", "m"), ("secretKeyRef", "s")];
    for (reference, object) in late {
        let pod = resolve::pod_of_key(object, reference, object, false);
        bed.prepare(&pod).await.unwrap_err();
        match reference {
            "secretKeyRef" => bed.secret(object, &[("k", "v")]),
            _ => bed.map(object, &json!({"k": "v"})),
        }
        bed.arrived().await;
        bed.prepare(&pod).await.unwrap();
    }
    let volumes = json!({"volumes": [
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ]});
    let mounts = json!({"volumeMounts": [{"name": "t", "mountPath": "/t"}]});
    bed.prepare(&resolve::pod("token", &volumes, &mounts)).await.unwrap();
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "sandboxed"}, "handler": "runsc"});
    bed.server.apply(class).unwrap();
    let sandboxed = json!({"runtimeClassName": "sandboxed"});
    bed.prepare(&resolve::pod("sandboxed", &sandboxed, &json!({}))).await.unwrap();
    let alone = resolve::pod("alone", &json!({"enableServiceLinks": false}), &json!({}));
    bed.prepare(&alone).await.unwrap();
    used(&bed.server)
}

/// A static pod that is shown and goes, and a pod of an earlier boot that is removed.
pub(crate) async fn mirrors_and_leftovers() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    let agent = status::Agent::start(&server, None).await;
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();

    let (mirrors, driver) = Mirrors::new("node-1", agent.outbox.clone(), wall());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    let node = server.apply(node).unwrap();
    mirrors.set_node_uid(Some(node["metadata"]["uid"].as_str().unwrap().into()));
    mirrors.relisted(&[]);
    let (desired, wanted) = watch::channel(None);
    tokio::spawn(driver.run(status::client(&server).await, wanted, stop.clone()));
    let object = json!({
        "metadata": {"name": "web-node-1", "namespace": "kube-system", "uid": "h1", "annotations": {
            "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "h1",
        }},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    });
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    for (pods, shown) in [(vec![pod], true), (Vec::new(), false)] {
        desired.send_replace(Some(Arc::new(DesiredPods::all(pods))));
        let is = |found: Option<Arc<Value>>| (found.is_some() == shown).then_some(());
        let path = "pods/kube-system/web-node-1";
        server.until("the mirror comes and goes", |all| is(all.get(path))).await.unwrap();
    }

    let home = tempfile::tempdir().unwrap();
    let ended = |boot: &str| TerminatedPods::new(home.path(), Some(boot.into()), wall());
    let status = json!({"phase": "Failed", "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]});
    let earlier = ended("boot-1");
    earlier.note(status::make(&server, "ours", status).pod_ref(), "shutdown");
    assert!(earlier.flush(Instant::now() + Duration::from_secs(30)).await);
    let cleanup = AfterBoot::new(ended("boot-2"), AfterBootPolicy::Delete, wall());
    let (_ready, is_ready) = watch::channel(true);
    let pods = KubePods::new(status::client(&server).await, "node-1".to_owned());
    tokio::spawn(cleanup.run(pods, is_ready, stop));
    let gone = |all: &winddown_apiserver::Objects<'_>| {
        all.get("pods/default/ours").is_none().then_some(())
    };
    server.until("what is left is removed", gone).await.unwrap();
    used(&server)
}

/// An event that happens twice.
pub(crate) async fn events() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    let client = status::client(&server).await;
    let (events, writer) = Events::new(client, NodeRef::new("n1"), 100, wall());
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(writer.run(stop));
    let pod = status::make(&server, "web", json!({}));
    for _ in 0..2 {
        events.send(EventDraft::warning(Subject::pod(pod.pod_ref()), "FailedSync", "no image"));
        assert!(events.flush(Instant::now() + Duration::from_secs(30)).await.is_empty());
    }
    used(&server)
}

/// A pod of a Job, which is evicted, and one that is deleted, and again with a shorter grace.
pub(crate) async fn companion() -> BTreeSet<Right> {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": true,
    });
    let job = scene::pod("job", &json!({"ownerReferences": [job]}));
    let mut moved = scene::pod("moved", &json!({}));
    moved["spec"]["evictionResponders"] = json!([{"name": "example.com/move", "priority": 9}]);
    let pods = [scene::pod("web", &json!({})), job, moved];
    // All requests are to be made, however late the answers are.
    let scene = scene::Scene::with(&pods, Duration::from_secs(600), true).await;
    scene.server.serve_version(37);
    // Whether it serves eviction requests is to be known in time, however busy the machine is.
    let what = "the eviction responders are known";
    scene
        .eventually(what, async |scene| {
            let pods = scene.runtime.desired().borrow().clone().unwrap_or_default();
            let asked = scene.runtime.eviction_constraints(&pods.pods).await.unwrap_or_default();
            asked.iter().any(|(_, constraints)| !constraints.responders.is_empty())
        })
        .await;
    scene.set_going_down();
    let uid = scene.uid("web");
    let (sender, grace) = Grace::until(Instant::now() + Duration::from_secs(300));
    let deleting = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string().then_some(());
    let shortens = async {
        let what = "the pod is deleted";
        scene.server.until(what, |all| deleting(&*all.get("pods/default/web")?)).await.unwrap();
        sender.shorten_to(Instant::now() + Duration::from_secs(1));
    };
    let soon = Grace::fixed(Duration::from_secs(1));
    let job = scene.uid("job");
    let (moved, a_while) = (scene.uid("moved"), Grace::fixed(Duration::from_secs(12)));
    let (stopped, evicted, moved, ()) = tokio::join!(
        scene.runtime.stop_pod(&uid, None, grace),
        scene.runtime.stop_pod(&job, None, soon),
        scene.runtime.stop_pod(&moved, None, a_while),
        shortens,
    );
    stopped.and(evicted).and(moved).unwrap();
    used(&scene.server)
}

/// A node that says that it goes down, beside its kubelet.
pub(crate) async fn node_of_a_kubelet() -> BTreeSet<Right> {
    let server = ApiServer::start().await.unwrap();
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
    let client = scene::client(&server).await;
    let (_facts, told) = watch::channel(NodeFacts::default());
    let (controller, handle) = NodeController::builder(client, "n1", told, scene::wall())
        .settings(NodeSettings::beside_kubelet())
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(controller.run(stop));
    handle.set_shutting_down(true);
    handle.flush(Instant::now() + Duration::from_secs(30)).await.unwrap();
    server
        .until("the node is watched", |all| (all.open_watches("nodes") > 0).then_some(()))
        .await
        .unwrap();
    used(&server)
}
