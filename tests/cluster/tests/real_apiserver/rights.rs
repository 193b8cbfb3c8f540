//! The manifests of `cluster/rbac`: what they let, and what they stop.

#[path = "../rights/compare.rs"]
#[allow(dead_code, reason = "the comparison itself is another test's")]
mod compare;

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_api_client::Connection;
use winddown_cluster::after_nodes::{NodesFollower, Reason, SeenNodes, wait};
use winddown_cluster::node::CLEAN_SHUTDOWN;

use compare::{Right, granted};
pub(crate) use compare::{daemon_set, manifest};

use super::RealApi;
use super::server::wall;

const LONG: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "system:serviceaccount:kube-system:winddown";

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
    let events = Right::new("create", "events.k8s.io", "events", "");
    assert!(!may(api, user, &[], &events, "").await, "the group has it from winddown:node-extra");
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
    let accounts: Api<ServiceAccount> = Api::namespaced(api.admin().await, "kube-system");
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
    let reference = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name,
        uid: pod.metadata.uid,
    };
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: Some(reference).filter(|_| bound),
            expiration_seconds: Some(600),
            ..Default::default()
        }),
        ..Default::default()
    };
    let token =
        accounts.create_token_request("winddown", &PostParams::default(), &request).await.unwrap();
    let file = api.folder.join(format!("{name}.token"));
    std::fs::write(&file, token.status.unwrap().token.unwrap()).unwrap();
    let config = api.config(&name, &json!({"tokenFile": file}));
    Connection::open(config, wall()).await.unwrap()
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
    CHECKED.get_or_init(|| check_the_companions_account(api)).await;
    let (own, other) = ("tokens-a", "tokens-b");
    api.namespace("tokens").await;
    api.apply(&[
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "other", "namespace": "tokens"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "tokens-of-the-test"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "winddown:cluster"},
            "subjects": [{"kind": "ServiceAccount", "name": "winddown", "namespace": "kube-system"}]}),
    ])
    .await;
    let mut pods = Vec::new();
    for node in [own, other] {
        api.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})]).await;
        pods.push(api.pod("tokens", &format!("on-{node}"), node).await);
    }
    let connection = companion(api, own, true).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(connection.client(), "tokens");
    let asked = async |account: &str, pod: Option<&Pod>| {
        let bound_object_ref = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let spec = TokenRequestSpec {
            bound_object_ref,
            expiration_seconds: Some(600),
            ..Default::default()
        };
        let request = TokenRequest { spec: Some(spec), ..Default::default() };
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
    for said in [asked("other", Some(&pods[0])).await, asked("default", None).await] {
        assert!(said.starts_with("403"), "{said}");
    }
    api.remove("tokens", own).await;
}

#[tokio::test]
async fn the_policies_let_the_agents_account_make_and_report_pods_of_its_own_node_and_no_other() {
    let Some(api) = RealApi::get().await else { return };
    CHECKED.get_or_init(|| check_the_companions_account(api)).await;
    let (own, other) = ("policy-a", "policy-b");
    api.namespace("policy").await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "policies-of-the-test"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "winddown:cluster"},
        "subjects": [{"kind": "ServiceAccount", "name": "winddown", "namespace": "kube-system"}],
    });
    api.apply(&[binding]).await;
    for node in [own, other] {
        api.apply(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})]).await;
        api.pod("policy", &format!("on-{node}"), node).await;
    }
    let connection = companion(api, own, true).await;
    let pods: Api<Pod> = Api::namespaced(connection.client(), "policy");
    let params = PatchParams::default();
    let status = Patch::Strategic(json!({"status": {"message": "seen"}}));
    // A new policy takes a moment until it is in force.
    let refused = async {
        loop {
            let said = refusal(pods.patch_status("on-policy-b", &params, &status).await);
            if said.starts_with("403") {
                return said;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let said = timeout(LONG, refused).await.unwrap();
    let wanted = "winddown on node 'policy-a' may not write to what belongs to node 'policy-b'";
    assert!(said.contains(wanted), "{said}");
    pods.patch_status("on-policy-a", &params, &status).await.unwrap();

    let made = async |name: &str, node: Option<&str>| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "a", "image": "x"}]},
        });
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        let pod = serde_json::from_value(pod).unwrap();
        refusal(pods.create(&PostParams::default(), &pod).await)
    };
    assert_eq!(made("made-a", Some(own)).await, "it was let");
    assert!(made("made-b", Some(other)).await.contains(wanted));
    let nowhere = "winddown on node 'policy-a' may not write to what belongs to node ''";
    assert!(made("made", None).await.contains(nowhere));
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
