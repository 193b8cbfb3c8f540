//! Certificates and tokens, and what a node may do with its own.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use winddown_api_client::{Bootstrap, ClusterConfig, Connection, ConnectionState, Credentials};

use super::RealApi;
use super::server::{BOOTSTRAP_TOKEN, HOUR, wall};

fn of<T: serde::de::DeserializeOwned>(object: serde_json::Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

async fn register(connection: &Connection, name: &str) -> Node {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let nodes: Api<Node> = Api::all(connection.client());
    nodes.create(&PostParams::default(), &of(node)).await.unwrap()
}

#[tokio::test]
async fn a_node_looks_after_itself_with_its_own_certificate() {
    let Some(api) = RealApi::get().await else { return };
    let connection = api.node("self").await;
    let client = connection.client();
    let create = PostParams::default();
    let params = PatchParams::default();
    let node = register(&connection, "self").await;

    let nodes: Api<Node> = Api::all(client.clone());
    let cordon = json!({"spec": {"unschedulable": true}, "metadata": {"annotations": {"a": "b"}}});
    nodes.patch("self", &params, &Patch::Strategic(cordon)).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("self", &params, &Patch::Strategic(&ready)).await.unwrap();
    let only = ListParams::default().fields("metadata.name=self");
    assert_eq!(nodes.list(&only).await.unwrap().items.len(), 1);
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "self-other"}});
    api.apply(&[other]).await;
    let refused = nodes.patch_status("self-other", &params, &Patch::Strategic(&ready)).await;
    assert_eq!(code(refused), 403);

    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "self",
                        "uid": node.metadata.uid}]);
    let lease = json!({"metadata": {"name": "self", "ownerReferences": owner},
                       "spec": {"holderIdentity": "self"}});
    let mut lease: Lease = leases.create(&create, &of(lease)).await.unwrap();
    lease.spec.get_or_insert_default().lease_duration_seconds = Some(40);
    leases.replace("self", &create, &lease).await.unwrap();

    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event = json!({
        "metadata": {"name": "self.1"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "winddown", "reportingInstance": "self", "action": "Shutdown",
        "reason": "NodeShutdown", "type": "Normal", "note": "a note",
        "regarding": {"kind": "Node", "name": "self"},
    });
    events.create(&create, &of(event)).await.unwrap();
    let again = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    events.patch("self.1", &params, &Patch::Strategic(again)).await.unwrap();
    Api::<Service>::all(client).list(&ListParams::default()).await.unwrap();
    assert!(connection.health().borrow().is_connected());
    api.remove("default-is-kept", "self").await;
}

#[tokio::test]
async fn a_node_sees_and_ends_its_own_pods_and_no_others() {
    let Some(api) = RealApi::get().await else { return };
    let (node, namespace) = ("pods-own", "pods-own");
    let connection = api.node(node).await;
    let owner = register(&connection, node).await;
    api.namespace(namespace).await;
    for name in ["web", "evicted", "mirrored"] {
        api.pod(namespace, name, node).await;
    }
    let foreign = api.pod(namespace, "foreign", "another-node").await;

    let client = connection.client();
    let all: Api<Pod> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let own = format!("spec.nodeName={node}");
    let listed = all.list(&ListParams::default().fields(&own)).await.unwrap();
    assert_eq!(listed.items.len(), 3);
    assert_eq!(code(all.list(&ListParams::default()).await), 403, "without the selector");
    let version = listed.metadata.resource_version.unwrap();
    let mut watch =
        all.watch(&WatchParams::default().fields(&own), &version).await.unwrap().boxed();

    let params = PatchParams::default();
    let web = pods.get("web").await.unwrap();
    let status = |uid: &Option<String>| {
        Patch::Strategic(json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}}))
    };
    pods.patch_status("web", &params, &status(&web.metadata.uid)).await.unwrap();
    match watch.try_next().await.unwrap() {
        Some(WatchEvent::Modified(pod)) => assert_eq!(pod.metadata.uid, web.metadata.uid),
        event => panic!("{event:?}"),
    }
    let other_uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    let refused = pods.patch_status("web", &params, &status(&other_uid)).await;
    let Err(kube::Error::Api(refused)) = refused else { panic!("{refused:?}") };
    // Not the 409 that an update gets: a patch is compared when its result is validated.
    assert_eq!(refused.code, 422);
    assert_eq!(refused.details.unwrap().causes[0].field, "metadata.uid");
    let uid = foreign.metadata.uid;
    assert_eq!(code(pods.patch_status("foreign", &params, &status(&uid)).await), 403);

    pods.evict("evicted", &EvictParams::default()).await.unwrap();
    assert_eq!(code(pods.evict("foreign", &EvictParams::default()).await), 403);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("web", &at_once).await.unwrap();
    assert_eq!(code(pods.delete("foreign", &at_once).await), 403);

    let mirror = json!({
        "metadata": {"name": format!("static-{node}"), "annotations": {
            "kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h",
            "kubernetes.io/config.source": "file",
        }, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node,
                                "uid": owner.metadata.uid, "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "x"}],
                 "enableServiceLinks": true, "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
    });
    let mut plain = mirror.clone();
    plain["metadata"]["annotations"] = json!({});
    let create = PostParams::default();
    assert_eq!(code(pods.create(&create, &of(plain)).await), 403, "a node makes mirrors only");
    pods.create(&create, &of(mirror)).await.unwrap();
    api.remove(namespace, node).await;
}

#[tokio::test]
async fn a_node_reads_what_its_pods_name_and_nothing_else() {
    let Some(api) = RealApi::get().await else { return };
    let (node, namespace) = ("reads", "reads");
    let connection = api.node(node).await;
    register(&connection, node).await;
    api.namespace(namespace).await;
    let admin = api.admin().await;
    let create = PostParams::default();
    for name in ["named", "not-named"] {
        let object = json!({"metadata": {"name": name}, "data": {}});
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace);
        secrets.create(&create, &of(object.clone())).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
        maps.create(&create, &of(object)).await.unwrap();
    }
    let pod = json!({
        "metadata": {"name": "a"},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "x", "envFrom": [
            {"secretRef": {"name": "named"}}, {"configMapRef": {"name": "named"}},
        ]}]},
    });
    let pods: Api<Pod> = Api::namespaced(admin, namespace);
    let pod: Pod = pods.create(&create, &of(pod)).await.unwrap();

    let client = connection.client();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    // The authorizer hears of the pod by a watch of its own.
    let named = async {
        while secrets.get("named").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), named).await.unwrap();
    maps.get("named").await.unwrap();
    let by_name = WatchParams::default().fields("metadata.name=named").timeout(1);
    secrets.watch(&by_name, "0").await.map(drop).unwrap();
    maps.watch(&by_name, "0").await.map(drop).unwrap();
    let by_name = ListParams::default().fields("metadata.name=named");
    secrets.list(&by_name).await.unwrap();
    assert_eq!(code(secrets.get("not-named").await), 403);
    assert_eq!(code(secrets.list(&ListParams::default()).await), 403);
    assert_eq!(code(maps.get("not-named").await), 403);

    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let request = json!({"metadata": {}, "spec": {"audiences": [], "expirationSeconds": 600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "a",
                           "uid": pod.metadata.uid}}});
    let token =
        accounts.create_token_request("default", &create, &of(request.clone())).await.unwrap();
    assert!(!token.status.unwrap().token.unwrap().is_empty());
    let mut unbound = request;
    unbound["spec"]["boundObjectRef"] = json!(null);
    assert_eq!(code(accounts.create_token_request("default", &create, &of(unbound)).await), 403);
    api.remove(namespace, node).await;
}

#[tokio::test]
async fn a_certificate_that_ends_is_replaced_without_a_failed_request() {
    let Some(api) = RealApi::get().await else { return };
    let user = "system:node:short";
    let lifetime = Duration::from_secs(4);
    let issued = api.authority.client(user, &["system:nodes"], lifetime);
    let connection = api.open(user, &issued).await;
    let nodes: Api<Node> = Api::all(connection.client());
    let own = ListParams::default().fields("metadata.name=short");
    nodes.list(&own).await.unwrap();

    let ended = async {
        while nodes.list(&own).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    let state = connection.health().borrow().state.clone();
    assert!(matches!(state, ConnectionState::Unauthorized { why } if why.contains("expired at")));

    let issued = api.authority.client(user, &["system:nodes"], HOUR);
    let identity = format!("{}{}", issued.certificate, issued.key);
    api.write(&format!("{user}.pem"), &identity);
    nodes.list(&own).await.unwrap();
    assert!(connection.health().borrow().is_connected());
}

/// Approves and signs the requests of this node as a controller manager would, for ever.
async fn sign(api: &RealApi, node: &str, lifetime: Duration) {
    let requests: Api<CertificateSigningRequest> = Api::all(api.admin().await);
    let subject = format!("system:node:{node}");
    loop {
        for request in requests.list(&ListParams::default()).await.unwrap() {
            let user = request.spec.username.as_deref().unwrap_or_default();
            let ours = user == subject || user == "system:bootstrap:test";
            let status = request.status.clone().unwrap_or_default();
            if !ours || status.certificate.is_some() {
                continue;
            }
            let name = request.metadata.name.clone().unwrap();
            let approved = CertificateSigningRequestCondition {
                type_: "Approved".into(),
                status: "True".into(),
                reason: Some("Test".into()),
                ..Default::default()
            };
            let chain = api.authority.node(&request.spec.request.0, node, lifetime);
            let status = CertificateSigningRequestStatus {
                conditions: Some(vec![approved]),
                certificate: None,
            };
            let mut request = CertificateSigningRequest { status: Some(status), ..request };
            let create = PostParams::default();
            request =
                requests.replace_subresource("approval", &name, &create, &request).await.unwrap();
            request.status.get_or_insert_default().certificate =
                Some(ByteString(chain.into_bytes()));
            requests.replace_status(&name, &create, &request).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_bootstrap_token_leads_to_a_certificate_which_renews_itself() {
    let Some(api) = RealApi::get().await else { return };
    let node = "bootstrapped";
    let user = json!({"token": BOOTSTRAP_TOKEN});
    let Credentials::Kubeconfig { path, .. } = api.config("bootstrap", &user).credentials else {
        panic!("a kubeconfig was written");
    };
    let bootstrap =
        Bootstrap { kubeconfig: path, folder: api.folder.join("pki"), node_name: node.into() };
    let config = ClusterConfig::new(Credentials::Bootstrap(bootstrap));
    let connection = Connection::open(config, wall()).await.unwrap();
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let running = connection.clone();
    tokio::spawn(async move { running.run(stop).await });

    let work = async {
        register(&connection, node).await;
        let first = connection.certificate().unwrap();
        while connection.certificate().unwrap() == first {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let nodes: Api<Node> = Api::all(connection.client());
        nodes.get(node).await.unwrap();
    };
    let limit = tokio::time::timeout(Duration::from_secs(120), work);
    tokio::select! {
        done = limit => done.unwrap(),
        () = sign(api, node, Duration::from_secs(10)) => {}
    }
    let requests: Api<CertificateSigningRequest> = Api::all(api.admin().await);
    let users: Vec<_> = requests
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter_map(|request| request.spec.username)
        .collect();
    assert!(users.contains(&format!("system:node:{node}")), "{users:?}");
    api.remove("default-is-kept", node).await;
}
