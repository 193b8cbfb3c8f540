//! Beside a kubelet: pods that a disruption budget protects.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_companion::{CompanionConfig, companion};
use winddown_shared::{Grace, PodUid, Runtime};

use super::RealApi;
use super::kubelet::{Containers, Kubelet};
use super::server::wall;

const NODE: &str = "beside-kubelet";
const SPACE: &str = "beside-kubelet";
const LONG: Duration = Duration::from_secs(60);

/// Two pods with a budget each: one lets its pod go after two refusals, the other never.
#[tokio::test]
async fn a_budget_is_heard_and_then_the_pod_is_deleted_in_what_is_left_of_its_grace() {
    let test = "a_budget_is_heard_and_then_the_pod_is_deleted_in_what_is_left_of_its_grace";
    let Some(api) = RealApi::with_controllers(test).await else { return };
    api.namespace(SPACE).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    api.apply(&[node]).await;
    let admin: Api<Pod> = Api::namespaced(api.admin().await, SPACE);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(api.admin().await, SPACE);
    let params = PatchParams::default();
    for name in ["gives-way", "stays-firm"] {
        api.pod(SPACE, name, NODE).await;
        let label = Patch::Merge(json!({"metadata": {"labels": {"app": name}}}));
        admin.patch(name, &params, &label).await.unwrap();
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
        });
        api.apply(&[budget]).await;
    }
    // Both come with the node's own certificate, as they would on a node.
    let connection = api.node(NODE).await;
    let containers = Containers::default();
    let takes = Duration::from_millis(200);
    let _kubelet = Kubelet::start(connection.client(), NODE, containers.clone(), takes);
    let config = CompanionConfig::new(NODE, wall());
    let (runtime, follower) = companion(connection.client(), containers.clone(), config);
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(follower.run(stop));
    let running = async {
        loop {
            let pods = runtime.list_pods().await.unwrap();
            if pods.len() == 2 && pods.iter().all(|pod| pod.running) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, running).await.unwrap();

    let begun = Instant::now();
    let ends = async |name: &str| {
        let uid = admin.get(name).await.unwrap().metadata.uid.unwrap();
        let grace = Grace::fixed(Duration::from_secs(15));
        let uid = PodUid::new(uid);
        timeout(LONG, runtime.stop_pod(&uid, None, grace)).await.unwrap().unwrap();
        begun.elapsed()
    };
    let gives_way = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let none = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
        budgets.patch("gives-way", &params, &none).await.unwrap();
    };
    let (evicted, deleted, ()) = tokio::join!(ends("gives-way"), ends("stays-firm"), gives_way);
    assert!(evicted >= Duration::from_millis(1500), "{evicted:?}");
    assert!(deleted >= Duration::from_secs(5), "a third of the grace is its budget's: {deleted:?}");
    assert_eq!(containers.count(), 0);
    // A pod has ended when nothing of it runs; its object is the kubelet's to remove, a moment later.
    let removed = async {
        while !admin.list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, removed).await.unwrap();
    api.remove(SPACE, NODE).await;
}
