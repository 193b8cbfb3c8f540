//! The taint of a node that goes down: who may set it, and what it keeps off.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSystemInfo, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use winddown_cluster::node::{
    NodeController, NodeControllerHandle, NodeFacts, NodeSettings, TAINT, TAINTED_BY,
};

use super::RealApi;
use super::server::wall;

const LONG: Duration = Duration::from_secs(60);

/// A node of a kubelet, and winddown beside it.
struct Beside {
    handle: NodeControllerHandle,
    nodes: Api<Node>,
    name: &'static str,
    _stop: DropGuard,
}

impl Beside {
    async fn begin(api: &RealApi, client: kube::Client, name: &'static str) -> Self {
        // The server taints each new node as not ready; what is applied then takes its place.
        let bare = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let mut node = bare.clone();
        node["spec"] = json!({"taints": [{"key": "theirs", "effect": "NoSchedule"}]});
        api.apply(&[bare, node]).await;
        let nodes: Api<Node> = Api::all(api.admin().await);
        let ready = json!({"status": {
            "nodeInfo": {"bootID": "boot-1", "architecture": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": ""},
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
        }});
        let params = PatchParams::default();
        nodes.patch_status(name, &params, &Patch::Strategic(ready)).await.unwrap();
        let info = NodeSystemInfo { boot_id: "boot-1".into(), ..NodeSystemInfo::default() };
        let (_facts, told) = watch::channel(NodeFacts { info, ..NodeFacts::default() });
        let (controller, handle) = NodeController::builder(client, name, told, wall())
            .settings(NodeSettings::beside_kubelet())
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(controller.run(stop.clone()));
        handle.set_ready(Ok(()));
        Self { handle, nodes, name, _stop: stop.drop_guard() }
    }

    async fn told(&self) {
        self.handle.flush(Instant::now() + LONG).await.unwrap();
    }

    async fn node(&self) -> Value {
        serde_json::to_value(self.nodes.get(self.name).await.unwrap()).unwrap()
    }

    async fn taints(&self) -> Vec<Value> {
        let node = self.node().await;
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.into_iter().map(|taint| taint["key"].clone()).collect()
    }
}

#[tokio::test]
async fn the_companions_account_taints_its_node_beside_other_writers_and_takes_only_that_off() {
    let Some(api) = RealApi::get().await else { return };
    let name = "tainted";
    let connection = super::rights::companion(api, name, true).await;
    let beside = Beside::begin(api, connection.client(), name).await;
    beside.told().await;
    assert!(winddown_companion::may_taint(&connection.client(), name).await.unwrap());
    assert_eq!(beside.taints().await, ["theirs"], "it was only asked");
    // As a controller does that answers to the cordon.
    let another = async {
        for number in 0..20 {
            loop {
                let mut node = beside.nodes.get(name).await.unwrap();
                let taints = node.spec.as_mut().unwrap().taints.as_mut().unwrap();
                let key = format!("theirs-{number}");
                taints.push(
                    serde_json::from_value(json!({"key": key, "effect": "NoSchedule"})).unwrap(),
                );
                if beside.nodes.replace(name, &Default::default(), &node).await.is_ok() {
                    break;
                }
            }
        }
    };
    beside.handle.set_shutting_down(true);
    tokio::join!(another, beside.told());
    let taints = beside.taints().await;
    assert_eq!(taints.len(), 22, "{taints:?}");
    assert!(taints.contains(&json!(TAINT)));
    beside.handle.set_shutting_down(false);
    beside.told().await;
    let node = beside.node().await;
    assert!(node["spec"].get("unschedulable").is_none());
    assert!(node["metadata"]["annotations"].get(TAINTED_BY).is_none());
    let taints = beside.taints().await;
    assert_eq!(taints.len(), 21, "{taints:?}");
    assert!(!taints.contains(&json!(TAINT)));
    api.remove("none", name).await;
}

#[tokio::test]
async fn a_kubelets_own_credentials_cordon_the_node_and_go_on_without_the_taint() {
    let Some(api) = RealApi::get().await else { return };
    let name = "not-tainted";
    let connection = api.node(name).await;
    let beside = Beside::begin(api, connection.client(), name).await;
    assert!(!winddown_companion::may_taint(&connection.client(), name).await.unwrap());
    beside.handle.set_shutting_down(true);
    beside.told().await;
    let node = beside.node().await;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(beside.taints().await, ["theirs"]);
    let refused = beside.handle.state().borrow().refused.clone();
    assert!(refused.as_deref().is_some_and(|why| why.contains("taints")), "{refused:?}");
    api.remove("none", name).await;
}

/// With the controller that makes the pods of DaemonSets.
#[tokio::test]
async fn only_a_daemon_set_that_tolerates_everything_makes_a_pod_while_the_node_goes_down() {
    let test = "only_a_daemon_set_that_tolerates_everything_makes_a_pod_while_the_node_goes_down";
    let Some(api) = RealApi::with_controllers(test).await else { return };
    let (name, space) = ("daemons", "daemons");
    api.namespace(space).await;
    let beside = Beside::begin(api, api.admin().await, name).await;
    let set = |set: &str, tolerations: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": set, "namespace": space},
            "spec": {
                "selector": {"matchLabels": {"set": set}},
                "template": {
                    "metadata": {"labels": {"set": set}},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/hostname": name},
                        "tolerations": tolerations,
                        "containers": [{"name": "a", "image": "x"}],
                    },
                },
            },
        })
    };
    let hostname = json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}});
    let params = PatchParams::default();
    beside.nodes.patch(name, &params, &Patch::Merge(hostname)).await.unwrap();
    let plain = json!([{"key": "theirs", "operator": "Exists"}]);
    api.apply(&[set("plain", plain), set("blanket", json!([{"operator": "Exists"}]))]).await;
    let pods: Api<Pod> = Api::namespaced(api.admin().await, space);
    let pod_of = async |set: &str| {
        let params = ListParams::default().labels(&format!("set={set}"));
        let found = pods.list(&params).await.unwrap().items;
        found.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none())
    };
    let comes = async |set: &str, before: Option<&str>| {
        let coming = async {
            loop {
                let now = pod_of(set).await.and_then(|pod| pod.metadata.uid);
                if let Some(now) = now.filter(|now| before != Some(now)) {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let Ok(uid) = timeout(LONG, coming).await else {
            panic!("{set} makes no pod within {LONG:?}\n{}", api.said_by_controllers());
        };
        uid
    };
    let (plain, blanket) = (comes("plain", None).await, comes("blanket", None).await);

    beside.handle.set_shutting_down(true);
    beside.told().await;
    let now = DeleteParams::default().grace_period(0);
    for set in ["plain", "blanket"] {
        let pod = pod_of(set).await.unwrap().metadata.name.unwrap();
        pods.delete(&pod, &now).await.unwrap();
    }
    // The controller looks at both in the same way: when it has answered to the second end, it has had
    // its time for the first.
    let blanket = comes("blanket", Some(&blanket)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(pod_of("plain").await.is_none(), "the taint keeps it off");

    beside.handle.set_shutting_down(false);
    beside.told().await;
    comes("plain", Some(&plain)).await;
    assert_eq!(pod_of("blanket").await.unwrap().metadata.uid, Some(blanket));
    api.remove(space, name).await;
}
