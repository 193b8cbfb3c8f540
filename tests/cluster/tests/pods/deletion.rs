//! The ends of pods, where the API server's own rules are the point.

use k8s_openapi::api::core::v1 as api;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use winddown_apiserver::Fault;

use crate::pods::harness::{Cluster, Running, path, pod};

async fn with_a_running_pod() -> (Cluster, Running) {
    let cluster = Cluster::new().await;
    let running = cluster.start().await.ready().await;
    cluster.server.apply(pod("a")).unwrap();
    cluster.until_phase("a", "Running").await;
    (cluster, running)
}

#[tokio::test]
async fn t27_a_pod_made_anew_under_its_name_is_another_pod() {
    let (cluster, running) = with_a_running_pod().await;
    let old = cluster.uid("a");
    cluster.server.pause_watches(true);
    cluster.server.remove(&path("a"));
    cluster.server.apply(pod("a")).unwrap();
    let new = cluster.uid("a");
    assert_ne!(old, new);
    cluster.server.pause_watches(false);
    cluster.until_phase("a", "Running").await;
    cluster.until_given(1).await;
    let given = cluster.node.pods();
    assert_eq!(given[0].uid().as_str(), new);
    assert_eq!(cluster.uid("a"), new);
    running.stop().await;
}

#[tokio::test]
async fn finalizers_keep_the_object_until_they_go() {
    let (cluster, running) = with_a_running_pod().await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    cluster.server.patch(&path("a"), &finalizers).unwrap();
    cluster.server.delete(&path("a"), Some(30)).unwrap();
    let removed = |o: &winddown_apiserver::Objects<'_>| {
        (o.get(&path("a"))?["metadata"]["deletionGracePeriodSeconds"] == 0).then_some(())
    };
    cluster.server.until("it was removed", removed).await.unwrap();
    assert_eq!(cluster.server.get(&path("a")).unwrap()["status"]["phase"], "Succeeded");
    let pods: Api<api::Pod> = Api::namespaced(cluster.client().await, "default");
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("a", &PatchParams::default(), &none).await.unwrap();
    cluster.until_gone("a").await;
    cluster.until_given(0).await;
    running.stop().await;
}

#[tokio::test]
async fn whatever_the_server_answers_to_the_final_delete_the_pod_goes() {
    let fault = || Fault::on("delete", "pods");
    let faults = [
        ("500 twice", fault().times(2).status(500)),
        ("429 with a time", fault().times(1).status(429).retry_after(1)),
        ("a conflict", fault().times(1).status(409).reason("Conflict")),
        ("closed before it was read", fault().times(1).close()),
        ("carried out, and the answer lost", fault().times(1).lose_answer()),
    ];
    for (what, fault) in faults {
        let (cluster, running) = with_a_running_pod().await;
        cluster.server.fault(fault);
        cluster.server.delete(&path("a"), Some(30)).unwrap();
        cluster.until_gone("a").await;
        cluster.until_given(0).await;
        println!("{what}: gone");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_status_that_is_refused_for_a_while_delays_the_removal_and_loses_nothing() {
    let (cluster, running) = with_a_running_pod().await;
    let refused = cluster.server.fault(Fault::on("patch", "pods/status").status(503));
    cluster.server.delete(&path("a"), Some(30)).unwrap();
    let tried = |o: &winddown_apiserver::Objects<'_>| {
        (o.get(&path("a")).is_some() && o.count("patch", "pods/status") > 3).then_some(())
    };
    cluster.server.until("its last word was tried", tried).await.unwrap();
    assert_eq!(cluster.server.count("delete", "pods"), 0);
    cluster.server.lift(refused);
    cluster.until_gone("a").await;
    cluster.until_given(0).await;
    running.stop().await;
}
