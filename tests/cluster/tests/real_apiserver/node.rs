//! A node's whole life, with a node's own credentials.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_cluster::node::{
    CORDONED_BY, LeaseTimes, NodeController, NodeControllerHandle, NodeFacts, NodeSettings,
    Registration,
};

use super::RealApi;
use super::server::wall;

const LONG: Duration = Duration::from_secs(60);

/// A node controller at work, for a node of this name.
pub(crate) struct Life {
    pub(crate) handle: NodeControllerHandle,
    facts: watch::Sender<NodeFacts>,
    pub(crate) stop: CancellationToken,
    /// As an administrator sees it.
    nodes: Api<Node>,
    leases: Api<Lease>,
    name: &'static str,
}

fn facts(boot: &str) -> NodeFacts {
    let amounts =
        [("cpu", "2000m"), ("memory", "4Gi"), ("pods", "110"), ("ephemeral-storage", "1")];
    let amounts: BTreeMap<_, _> =
        amounts.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).into();
    let address = |text: &str| NodeAddress { type_: "InternalIP".into(), address: text.into() };
    NodeFacts {
        labels: [("example.com/ours".to_owned(), "1".to_owned())].into(),
        taints: vec![taint("example.com/ours")],
        addresses: vec![address("10.0.0.1"), address("fd00::1")],
        capacity: amounts.clone(),
        allocatable: amounts,
        info: NodeSystemInfo { boot_id: boot.into(), ..NodeSystemInfo::default() },
        port: Some(10250),
        ..NodeFacts::default()
    }
}

fn taint(key: &str) -> Taint {
    Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), value: None, time_added: None }
}

impl Life {
    async fn start(api: &RealApi, name: &'static str, boot: &str) -> Self {
        Self::begin(api, api.node(name).await.client(), name, boot).await
    }

    /// With this client.
    pub(crate) async fn begin(
        api: &RealApi,
        client: kube::Client,
        name: &'static str,
        boot: &str,
    ) -> Self {
        let (facts, told) = watch::channel(facts(boot));
        let settings = NodeSettings {
            lease: Some(LeaseTimes::new(Duration::from_secs(4), Duration::from_secs(1)).unwrap()),
            registration: Registration::Always,
            ..NodeSettings::default()
        };
        let (controller, handle) =
            NodeController::builder(client, name, told, wall()).settings(settings).build().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(controller.run(stop.clone()));
        let admin = api.admin().await;
        let leases = Api::namespaced(admin.clone(), "kube-node-lease");
        Self { handle, facts, stop, nodes: Api::all(admin), leases, name }
    }

    pub(crate) async fn told(&self) {
        self.handle.flush(Instant::now() + LONG).await.unwrap();
    }

    pub(crate) async fn node(&self) -> serde_json::Value {
        serde_json::to_value(self.nodes.get(self.name).await.unwrap()).unwrap()
    }

    async fn edit(&self, patch: serde_json::Value) {
        let params = PatchParams { field_manager: Some("kubectl".into()), ..Default::default() };
        self.nodes.patch(self.name, &params, &Patch::Strategic(patch)).await.unwrap();
    }

    /// Waits until the node is as `is` has it, as the node's own watch tells.
    async fn until(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) {
        let mut seen = self.handle.server_node();
        let arrived = seen.wait_for(|node| {
            node.as_deref().is_some_and(|node| is(&serde_json::to_value(node).unwrap()))
        });
        let Ok(arrived) = timeout(LONG, arrived).await else {
            panic!("{what}: not so within {LONG:?}");
        };
        arrived.unwrap();
    }
}

pub(crate) fn condition(node: &serde_json::Value, kind: &str) -> serde_json::Value {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

#[tokio::test]
async fn a_node_registers_goes_down_and_comes_back_and_a_persons_cordon_stays() {
    let Some(api) = RealApi::get().await else { return };
    let life = Life::start(api, "life", "boot-1").await;
    life.handle.set_ready(Ok(()));
    life.told().await;
    let node = life.node().await;
    assert_eq!(condition(&node, "Ready")["status"], "True");
    assert_eq!(node["status"]["addresses"].as_array().unwrap().len(), 2);
    let keys = node["spec"]["taints"].as_array().unwrap().iter().map(|taint| taint["key"].clone());
    assert!(keys.into_iter().any(|key| key == "example.com/ours"));

    // What the server writes its own way (2000m is 2) is no reason to write again.
    let writes = life.handle.state().borrow().status_writes;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(life.handle.state().borrow().status_writes, writes);

    life.handle.set_shutting_down(true);
    life.told().await;
    let node = life.node().await;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(condition(&node, "GracefulNodeShutdownInProgress")["status"], "True");
    assert_eq!(condition(&node, "DrainInProgress")["reason"], "NodeShutdown");
    assert_eq!(condition(&node, "Ready")["message"], "node is shutting down");
    life.stop.cancel();

    let life = Life::start(api, "life", "boot-2").await;
    life.told().await;
    assert_eq!(life.node().await["spec"]["unschedulable"], true, "not ready yet");
    life.handle.set_ready(Ok(()));
    life.told().await;
    let node = life.node().await;
    assert!(node["spec"].get("unschedulable").is_none());
    assert_eq!(condition(&node, "GracefulNodeShutdownInProgress")["status"], "False");

    // Taken back and made anew while this agent is away: the server remembers by whom.
    life.handle.set_shutting_down(true);
    life.told().await;
    life.stop.cancel();
    tokio::time::sleep(Duration::from_millis(200)).await;
    life.edit(json!({ "spec": { "unschedulable": null } })).await;
    life.edit(json!({ "spec": { "unschedulable": true } })).await;
    let life = Life::start(api, "life", "boot-3").await;
    life.handle.set_ready(Ok(()));
    life.told().await;
    let node = life.node().await;
    assert_eq!(node["spec"]["unschedulable"], true, "the person's cordon stays");
    assert!(node["metadata"]["annotations"].get(CORDONED_BY).is_none());
    life.stop.cancel();
}

#[tokio::test]
async fn what_is_ours_is_kept_right_and_what_is_not_ours_is_left_alone() {
    let Some(api) = RealApi::get().await else { return };
    let life = Life::start(api, "owned", "boot-1").await;
    life.handle.set_ready(Ok(()));
    life.told().await;
    life.edit(
        json!({ "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } } }),
    )
    .await;
    let unknown = json!({ "status": { "capacity": { "example.com/theirs": "3" }, "conditions": [
        { "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "m" },
        { "type": "Theirs", "status": "True", "reason": "r", "message": "m" },
    ] } });
    let params = PatchParams::default();
    life.nodes.patch_status("owned", &params, &Patch::Strategic(unknown)).await.unwrap();
    life.until("it is ready again", |node| {
        condition(node, "Ready")["status"] == "True" && !condition(node, "Theirs").is_null()
    })
    .await;
    life.facts.send_modify(|facts| {
        facts.labels = [("example.com/new".to_owned(), "1".to_owned())].into();
        facts.addresses.truncate(1);
        facts.labels.insert("node-restriction.kubernetes.io/ours".to_owned(), "1".to_owned());
        facts.capacity.insert("example.com/ours".into(), Quantity("1".into()));
        // Only a node that is registered gets them.
        facts.taints = vec![taint("example.com/other")];
    });
    life.until("labels, addresses and resources", |node| {
        let labels = &node["metadata"]["labels"];
        labels["example.com/new"] == "1"
            && labels.get("example.com/ours").is_none()
            && node["status"]["addresses"].as_array().map(Vec::len) == Some(1)
            && node["status"]["capacity"]["example.com/ours"] == "1"
    })
    .await;
    let mut state = life.handle.state();
    let refused = timeout(LONG, state.wait_for(|state| state.refused.is_some())).await;
    let refused = refused.unwrap().unwrap().refused.clone().unwrap();
    let without = "without the labels node-restriction.kubernetes.io/ours: ";
    assert!(refused.starts_with(without), "{refused}");
    life.facts.send_modify(|facts| {
        facts.capacity.remove("example.com/ours");
    });
    life.until("ours is gone", |node| node["status"]["capacity"].get("example.com/ours").is_none())
        .await;
    let node = life.node().await;
    assert_eq!(node["metadata"]["labels"]["theirs"], "1");
    assert_eq!(node["metadata"]["annotations"]["theirs"], "1");
    assert_eq!(node["status"]["capacity"]["example.com/theirs"], "3");
    assert_eq!(condition(&node, "Theirs")["status"], "True");
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint["key"] == "example.com/ours"), "{taints:?}");
    life.stop.cancel();
}

#[tokio::test]
async fn a_node_that_was_deleted_comes_back_with_a_new_uid_and_a_new_lease() {
    let Some(api) = RealApi::get().await else { return };
    let life = Life::start(api, "again", "boot-1").await;
    life.handle.set_ready(Ok(()));
    life.told().await;
    let uid = life.node().await["metadata"]["uid"].clone();
    let owner = |lease: &Lease| lease.metadata.owner_references.as_ref().unwrap()[0].uid.clone();
    let lease_of = |uid: serde_json::Value| async {
        let uid = uid;
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Some(lease) = life.leases.get_opt("again").await.unwrap()
                && uid == owner(&lease)
            {
                return lease;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no lease of {uid} within {LONG:?}");
    };
    let lease = lease_of(uid.clone()).await;
    life.nodes.delete("again", &DeleteParams::default()).await.unwrap();
    life.until("another node", |node| {
        node["metadata"]["uid"] != uid && condition(node, "Ready")["status"] == "True"
    })
    .await;
    let new = lease_of(life.node().await["metadata"]["uid"].clone()).await;
    assert_ne!(new.metadata.uid, lease.metadata.uid);
    // A lease that is deleted under its keeper is made anew.
    life.leases.delete("again", &DeleteParams::default()).await.unwrap();
    let end = Instant::now() + LONG;
    while life.leases.get_opt("again").await.unwrap().is_none() {
        assert!(Instant::now() < end, "the lease is made anew");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    life.stop.cancel();
}
