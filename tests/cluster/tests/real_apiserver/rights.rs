//! The manifests of `cluster/rbac`: what they let, and what they stop.

#[path = "../rights/compare.rs"]
#[allow(dead_code, reason = "the comparison itself is another test's")]
mod compare;

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_api_client::Connection;
use winddown_cluster::after_nodes::{NodesFollower, Reason, SeenNodes, wait};
use winddown_cluster::node::CLEAN_SHUTDOWN;
use winddown_node_tests::packages::repository;

use compare::{ACCOUNT, Right, granted};
pub(crate) use compare::{daemon_set, manifest};

use super::RealApi;
use super::server::wall;

const LONG: Duration = Duration::from_secs(60);

/// Whether the server would let this user do it.
async fn may(api: &RealApi, user: &str, groups: &[&str], right: &Right, name: &str) -> bool {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.iter().map(|&group| group.to_owned()).collect()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace: Some(right.namespace.clone()).filter(|name| !name.is_empty()),
                name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                ..Default::default()
            }),
            ..Default::default()
        },
        ..Default::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(api.admin().await);
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed
}

#[tokio::test]
async fn the_companions_account_may_do_what_its_role_says_and_little_else() {
    let Some(api) = RealApi::get().await else { return };
    CHECKED.get_or_init(|| check_the_companions_account(api)).await;
}

/// Done before a test gives the account more than its role.
static CHECKED: OnceCell<()> = OnceCell::const_new();

/// The account runs pods as well, after it was seen what it may do without that.
async fn cluster_mode(api: &RealApi) {
    static APPLIED: OnceCell<()> = OnceCell::const_new();
    CHECKED.get_or_init(|| check_the_companions_account(api)).await;
    APPLIED.get_or_init(|| async { api.apply(&manifest("cluster-mode")).await }).await;
}

async fn check_the_companions_account(api: &RealApi) {
    let wanted = granted(&manifest("companion-mode"), "winddown:companion");
    assert!(!wanted.is_empty());
    for right in &wanted {
        assert!(may(api, ACCOUNT, &[], right, "x").await, "{right}");
    }
    for (verb, resource) in [
        ("create", "pods"),
        ("delete", "nodes"),
        ("get", "secrets"),
        ("list", "configmaps"),
        ("create", "serviceaccounts/token"),
        ("create", "pods/exec"),
        ("deletecollection", "pods"),
    ] {
        let right = Right::new(verb, "", resource, "");
        assert!(!may(api, ACCOUNT, &[], &right, "").await, "{right}");
    }
}

#[tokio::test]
async fn the_daemon_set_would_be_taken_as_it_stands() {
    let Some(api) = RealApi::get().await else { return };
    api.would_take(&daemon_set()).await;
}

#[tokio::test]
async fn a_kubelets_own_credentials_lack_nothing_that_the_companion_asks_of_the_api_server() {
    let Some(api) = RealApi::get().await else { return };
    let node = "rights-beside-kubelet";
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    api.apply(&[object]).await;
    let connection = api.node(node).await;
    let missing = winddown_companion::missing_rights(&connection.client(), node).await.unwrap();
    assert_eq!(missing, []);
    // 1.36 does not serve eviction requests.
    let missing = winddown_companion::missing_for_requests(&connection.client(), node).await;
    assert_eq!(missing.unwrap(), []);
    let missing = winddown_companion::missing_rights(&connection.client(), "other").await.unwrap();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert!(missing.contains(&"list pods".to_owned()), "{missing:?}");
    let client = connection.client();
    assert_eq!(
        winddown_companion::kubelet_elsewhere(&client, "other").await.as_deref(),
        Some(node)
    );
    assert_eq!(winddown_companion::kubelet_elsewhere(&client, node).await, None);
}

#[tokio::test]
async fn a_node_lacks_only_what_the_manifests_add() {
    let Some(api) = RealApi::get().await else { return };
    let user = "system:node:rights-node";
    let wanted = granted(&manifest("cluster-mode"), "winddown:cluster");
    let mut denied = Vec::new();
    for right in &wanted {
        let name = if right.resource.starts_with("nodes") || right.group.starts_with("coord") {
            "rights-node"
        } else {
            ""
        };
        if !may(api, user, &["system:nodes"], right, name).await {
            denied.push(right.to_string());
        }
    }
    // All of these depend on the pods that are bound to the node, and so are let by name.
    assert_eq!(
        denied,
        [
            "create serviceaccounts/token",
            "get configmaps",
            "get pods",
            "get secrets",
            "list configmaps",
            "list pods",
            "list secrets",
            "watch configmaps",
            "watch pods",
            "watch secrets",
        ]
    );
    // Before 1.35 it also lacks these.
    let extra = manifest("node-extra");
    for right in granted(&extra, "winddown:node-extra") {
        assert!(wanted.contains(&right), "{right}");
    }
    api.would_take(&extra).await;
}

#[tokio::test]
async fn a_node_reads_the_nodes_that_go_down_first_only_with_the_role_for_it() {
    let Some(api) = RealApi::get().await else { return };
    let label = json!({"rack": "after-nodes"});
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": label}});
    api.apply(&[node("after-control"), node("after-worker")]).await;
    let connection = api.node("after-control").await;
    let follower = NodesFollower::new(connection.client(), "rack=after-nodes", "after-control");
    let (mut seen, stop) = (follower.seen(), CancellationToken::new());
    let run = tokio::spawn(follower.run(stop.clone()));
    let refused =
        |seen: &SeenNodes| seen.trouble.as_deref().is_some_and(|why| why.contains("nodes"));
    timeout(LONG, seen.wait_for(refused)).await.unwrap().unwrap();
    assert_eq!(seen.borrow().nodes, None);
    api.apply(&manifest("after-nodes")).await;
    let known = |seen: &SeenNodes| seen.nodes.as_ref().is_some_and(|nodes| nodes.len() == 1);
    timeout(LONG, seen.wait_for(known)).await.unwrap().unwrap();
    let clean = json!({"status": {"conditions": [{"type": CLEAN_SHUTDOWN, "status": "True"}]}});
    let nodes: Api<Node> = Api::all(api.admin().await);
    let params = PatchParams::default();
    nodes.patch_status("after-worker", &params, &Patch::Strategic(clean)).await.unwrap();
    let until = Instant::now() + LONG;
    assert_eq!(timeout(LONG, wait(seen, until, |_| {})).await, Ok(Reason::AllDown));
    stop.cancel();
    run.await.unwrap();
}

/// A connection with a token of the agent's account, bound to its pod on this node.
pub(crate) async fn companion(api: &RealApi, node: &str, bound: bool) -> Connection {
    let pods: Api<Pod> = Api::namespaced(api.admin().await, "kube-system");
    let name = format!("winddown-{node}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": "winddown",
            "containers": [{"name": "a", "image": "x"}],
        },
    });
    let pod = serde_json::from_value(pod).unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(api.admin().await, "kube-system");
    let request = token_request(Some(&pod).filter(|_| bound));
    let token =
        accounts.create_token_request("winddown", &PostParams::default(), &request).await.unwrap();
    with_token(api, &name, &token.status.unwrap().token.unwrap()).await
}

async fn with_token(api: &RealApi, name: &str, token: &str) -> Connection {
    let file = api.write(&format!("{name}.token"), token);
    let config = api.config(name, &json!({"tokenFile": file}));
    Connection::open(config, wall()).await.unwrap()
}

/// For a token that is bound to this pod, or to nothing.
fn token_request(pod: Option<&Pod>) -> TokenRequest {
    let bound_object_ref = pod.map(|pod| BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    });
    let spec =
        TokenRequestSpec { bound_object_ref, expiration_seconds: Some(600), ..Default::default() };
    TokenRequest { spec: Some(spec), ..Default::default() }
}

fn refusal<T>(result: Result<T, kube::Error>) -> String {
    match result {
        Ok(_) => "it was let".into(),
        Err(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn the_companion_writes_on_its_own_node_only() {
    let Some(api) = RealApi::get().await else { return };
    let (own, other) = ("companion-a", "companion-b");
    api.namespace("companion").await;
    for name in [own, other] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        api.apply(&[node]).await;
        api.pod("companion", &format!("on-{name}"), name).await;
        api.pod("companion", &format!("evicted-on-{name}"), name).await;
    }
    let connection = companion(api, own, true).await;
    let pods: Api<Pod> = Api::namespaced(connection.client(), "companion");
    let nodes: Api<Node> = Api::all(connection.client());
    let params = PatchParams::default();
    let cordon = Patch::Strategic(json!({"spec": {"unschedulable": true}}));

    // A new policy takes a moment until it is in force.
    let refused = async {
        loop {
            let said = refusal(nodes.patch(other, &params, &cordon).await);
            if said.starts_with("403") {
                return said;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let said = tokio::time::timeout(std::time::Duration::from_secs(60), refused).await.unwrap();
    let wanted =
        "winddown on node 'companion-a' may not write to what belongs to node 'companion-b'";
    assert!(said.contains(wanted), "{said}");
    let delete = DeleteParams::default().grace_period(0);
    for said in [
        refusal(pods.delete("on-companion-b", &delete).await),
        refusal(nodes.patch_status(other, &params, &Patch::Strategic(json!({"status": {}}))).await),
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    // The policy for evictions is another one.
    let evict = kube::api::EvictParams::default();
    let refused = async {
        loop {
            let said = refusal(pods.evict("evicted-on-companion-b", &evict).await);
            if said.starts_with("403") {
                return said;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let said = tokio::time::timeout(std::time::Duration::from_secs(60), refused).await.unwrap();
    let wanted =
        "winddown on node 'companion-a' may not evict pod 'evicted-on-companion-b' of another";
    assert!(said.contains(wanted), "{said}");
    pods.evict("evicted-on-companion-a", &evict).await.unwrap();
    nodes.patch(own, &params, &cordon).await.unwrap();
    pods.delete("on-companion-a", &delete).await.unwrap();

    let unbound = companion(api, other, false).await;
    let nodes: Api<Node> = Api::all(unbound.client());
    let said = refusal(nodes.patch(other, &params, &cordon).await);
    assert!(said.contains("winddown on node '' may not"), "{said}");
    api.remove("companion", own).await;
}

#[tokio::test]
async fn the_agents_account_gets_tokens_of_pods_on_its_own_node_only() {
    let Some(api) = RealApi::get().await else { return };
    cluster_mode(api).await;
    let (own, other) = ("tokens-a", "tokens-b");
    api.namespace("tokens").await;
    api.apply(&[json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "other", "namespace": "tokens"}})])
        .await;
    let mut pods = Vec::new();
    for node in [own, other] {
        api.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})]).await;
        pods.push(api.pod("tokens", &format!("on-{node}"), node).await);
    }
    let connection = companion(api, own, true).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(connection.client(), "tokens");
    let asked = async |account: &str, pod: Option<&Pod>| {
        let request = token_request(pod);
        refusal(accounts.create_token_request(account, &PostParams::default(), &request).await)
    };
    // A new policy takes a moment until it is in force.
    let refused = async {
        while !asked("default", Some(&pods[1])).await.starts_with("403") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), refused).await.unwrap();
    assert_eq!(asked("default", Some(&pods[0])).await, "it was let");
    // A namespace without pods has no parameter for a policy: that refuses the account alone.
    api.namespace("tokens-empty").await;
    let request = token_request(None);
    for (client, let_in) in [(api.admin().await, true), (connection.client(), false)] {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "tokens-empty");
        let params = PostParams::default();
        let said = refusal(accounts.create_token_request("default", &params, &request).await);
        assert_eq!(said == "it was let", let_in, "{said}");
    }
    let own_pods: Api<Pod> = Api::namespaced(connection.client(), "tokens");
    let mirror = mirror_pod("of-no-account", own);
    let mirror = own_pods.create(&PostParams::default(), &mirror).await.unwrap();
    for said in [
        asked("other", Some(&pods[0])).await,
        asked("default", None).await,
        asked("default", Some(&mirror)).await,
    ] {
        assert!(said.starts_with("403"), "{said}");
    }
    api.remove("tokens", own).await;
}

/// A pod that a node may make. The server sees to its owner for a node's certificate only.
fn mirror_pod(name: &str, node: &str) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "x"}]},
    });
    serde_json::from_value(pod).unwrap()
}

/// Waits until the account's role and the policies are in force: what a policy refuses is refused by it.
async fn in_force(connection: &Connection, other: &str) {
    let leases: Api<Lease> = Api::namespaced(connection.client(), "kube-node-lease");
    let pods: Api<Pod> = Api::namespaced(connection.client(), "default");
    let both = async {
        loop {
            let lease = refusal(leases.create(&PostParams::default(), &lease(other)).await);
            let pod = refusal(pods.create(&PostParams::default(), &mirror_pod("x", other)).await);
            if [lease, pod].iter().all(|said| said.contains("may not write to what belongs to")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LONG, both).await.unwrap();
}

fn lease(name: &str) -> Lease {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    Lease { metadata, ..Lease::default() }
}

#[tokio::test]
async fn the_agents_account_makes_mirror_pods_of_its_own_node_and_reports_its_pods_and_no_others() {
    let Some(api) = RealApi::get().await else { return };
    cluster_mode(api).await;
    let (own, other) = ("policy-a", "policy-b");
    api.namespace("policy").await;
    for node in [own, other] {
        api.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})]).await;
        api.pod("policy", &format!("on-{node}"), node).await;
    }
    let connection = companion(api, own, true).await;
    in_force(&connection, other).await;
    let pods: Api<Pod> = Api::namespaced(connection.client(), "policy");
    let params = PatchParams::default();
    let status = Patch::Strategic(json!({"status": {"message": "seen"}}));
    let wanted = "winddown on node 'policy-a' may not write to what belongs to node 'policy-b'";
    let said = refusal(pods.patch_status("on-policy-b", &params, &status).await);
    assert!(said.contains(wanted), "{said}");
    pods.patch_status("on-policy-a", &params, &status).await.unwrap();
    let labels = Patch::Strategic(json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}}));
    let said = refusal(pods.patch_status("on-policy-a", &params, &labels).await);
    assert!(said.contains("may not change labels of pods"), "{said}");

    let made = async |pod: &Pod| refusal(pods.create(&PostParams::default(), pod).await);
    assert_eq!(made(&mirror_pod("made-a", own)).await, "it was let");
    assert!(made(&mirror_pod("made-b", other)).await.contains(wanted));
    // The server itself refuses a mirror pod of no node.
    let mut nowhere = mirror_pod("made", own);
    nowhere.metadata.annotations = None;
    nowhere.spec.as_mut().unwrap().node_name = None;
    let said = made(&nowhere).await;
    assert!(said.contains("may not write to what belongs to node ''"), "{said}");
    // What would run as a ServiceAccount, and so get a token of it.
    let mut ordinary = mirror_pod("ordinary", own);
    ordinary.metadata.annotations = None;
    let mut of_account = mirror_pod("of-account", own);
    of_account.spec.as_mut().unwrap().service_account_name = Some("default".into());
    let mut of_replica_set = mirror_pod("of-replica-set", own);
    of_replica_set.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "web".into(),
        uid: "1".into(),
        ..OwnerReference::default()
    }]);
    for pod in [ordinary, of_account, of_replica_set] {
        let said = made(&pod).await;
        assert!(said.starts_with("403"), "{said}");
    }
    let delete = DeleteParams::default().grace_period(0);
    assert!(refusal(pods.delete("on-policy-b", &delete).await).contains(wanted));
    pods.delete("made-a", &delete).await.unwrap();

    // Others are none of the policies' business: a node with a certificate of its own, and the administrator.
    let node = api.node(other).await;
    for client in [node.client(), api.admin().await] {
        let pods: Api<Pod> = Api::namespaced(client, "policy");
        pods.patch_status("on-policy-b", &params, &status).await.unwrap();
    }
    api.remove("policy", own).await;
}

#[tokio::test]
async fn the_agents_account_holds_the_lease_labels_and_reports_events_of_its_own_node_only() {
    let Some(api) = RealApi::get().await else { return };
    cluster_mode(api).await;
    let (own, other) = ("held-a", "held-b");
    api.namespace("held").await;
    let leases: Api<Lease> = Api::namespaced(api.admin().await, "kube-node-lease");
    for node in [own, other] {
        api.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node,
            "labels": {"node-role.kubernetes.io/worker": ""}}})])
            .await;
    }
    leases.create(&PostParams::default(), &lease(other)).await.unwrap();
    let connection = companion(api, own, true).await;
    in_force(&connection, "held-c").await;

    let leases: Api<Lease> = Api::namespaced(connection.client(), "kube-node-lease");
    let mut mine = leases.create(&PostParams::default(), &lease(own)).await.unwrap();
    mine.spec = Some(LeaseSpec { holder_identity: Some(own.into()), ..LeaseSpec::default() });
    leases.replace(own, &PostParams::default(), &mine).await.unwrap();
    let theirs = leases.get(other).await.unwrap();
    let said = refusal(leases.replace(other, &PostParams::default(), &theirs).await);
    assert!(said.contains("may not write to what belongs to node 'held-b'"), "{said}");

    let nodes: Api<Node> = Api::all(connection.client());
    let label = async |key: &str, value: Option<&str>| {
        let patch = Patch::Strategic(json!({"metadata": {"labels": {key: value}}}));
        refusal(nodes.patch(own, &PatchParams::default(), &patch).await)
    };
    for key in
        ["rack", "kubernetes.io/hostname", "node.kubernetes.io/x", "topology.kubernetes.io/zone"]
    {
        assert_eq!(label(key, Some("x")).await, "it was let", "{key}");
        assert_eq!(label(key, None).await, "it was let", "{key}");
    }
    for (key, value) in [
        ("node-role.kubernetes.io/control-plane", Some("")),
        ("node-role.kubernetes.io/worker", None),
        ("safe.node-restriction.kubernetes.io/x", Some("x")),
        ("kubernetes.io/x", Some("x")),
    ] {
        let said = label(key, value).await;
        assert!(said.contains("may not change labels of kubernetes.io"), "{key}: {said}");
    }
    // What its role lets it make, it makes with labels.
    nodes.get(own).await.unwrap();
    Api::<Node>::all(api.admin().await).delete(own, &DeleteParams::default()).await.unwrap();
    let again = |labels: serde_json::Value| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": own, "labels": labels}});
        serde_json::from_value::<Node>(node).unwrap()
    };
    let params = PostParams::default();
    let said =
        refusal(nodes.create(&params, &again(json!({"node-role.kubernetes.io/x": ""}))).await);
    assert!(said.contains("may not change labels of kubernetes.io"), "{said}");
    nodes.create(&params, &again(json!({"kubernetes.io/os": "linux"}))).await.unwrap();

    let events: Api<Event> = Api::namespaced(connection.client(), "held");
    let event = |name: &str, node: &str| {
        serde_json::from_value::<Event>(json!({
            "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
            "action": "a", "reason": "r", "note": "n", "reportingController": "winddown",
            "reportingInstance": node,
            "regarding": {"kind": "Pod", "namespace": "held", "name": "p"},
        }))
        .unwrap()
    };
    events.create(&params, &event("of-own", own)).await.unwrap();
    let said = refusal(events.create(&params, &event("of-other", other)).await);
    assert!(said.contains("may write events of its own only"), "{said}");
    let all: Api<Event> = Api::namespaced(api.admin().await, "held");
    all.create(&params, &event("of-other", other)).await.unwrap();
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let series = Patch::Merge(series);
    events.patch("of-own", &PatchParams::default(), &series).await.unwrap();
    let said = refusal(events.patch("of-other", &PatchParams::default(), &series).await);
    assert!(said.contains("may write events of its own only"), "{said}");
    api.remove("held", own).await;
}

/// The commands for a ServiceAccount on the page about clusters.
fn typed() -> Vec<String> {
    let page = repository().join("docs/how-to/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
    let all: Vec<_> = lines.map(str::to_owned).collect();
    let from = all.iter().position(|line| line.contains("cluster-mode.yaml")).unwrap();
    let to = all.iter().position(|line| line.contains("create token")).unwrap();
    all[from..=to].to_vec()
}

#[tokio::test]
async fn the_token_that_the_page_about_clusters_has_made_lets_an_agent_write_on_that_node() {
    let test = "the_token_that_the_page_about_clusters_has_made_lets_an_agent_write_on_that_node";
    let Some(kubectl) = super::kubectl::program(test).await else { return };
    let Some(api) = RealApi::get().await else { return };
    cluster_mode(api).await;
    api.admin().await;
    let rbac = repository().join("cluster/rbac").display().to_string();
    let mut token = String::new();
    for line in typed() {
        let line = line
            .replace("kubectl ", &format!("{} ", kubectl.display()))
            .replace("cluster/rbac", &rbac)
            .replace("apply ", "apply --validate=false --server-side --force-conflicts ")
            .replace("NAME", "token-node");
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &line]).env("KUBECONFIG", api.folder.join("admin.kubeconfig"));
        let ran = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        token = String::from_utf8(ran.stdout).unwrap().trim().to_owned();
    }
    let connection = with_token(api, "token-node", &token).await;
    in_force(&connection, "other-node").await;
    let leases: Api<Lease> = Api::namespaced(connection.client(), "kube-node-lease");
    leases.create(&PostParams::default(), &lease("token-node")).await.unwrap();
    let nodes: Api<Node> = Api::all(connection.client());
    let cordon = Patch::Strategic(json!({"spec": {"unschedulable": true}}));
    nodes.patch("token-node", &PatchParams::default(), &cordon).await.unwrap();
    api.remove("none", "token-node").await;
}
