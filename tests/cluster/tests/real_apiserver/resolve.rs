//! What pods refer to, read with the rights of a node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use winddown_cluster::events::{Events, NodeRef};
use winddown_cluster::pods::{Prepare as _, PrepareError};
use winddown_pod_references::{Resolver, ResolverConfig};
use winddown_shared::Pod;

use super::RealApi;
use super::server::wall;

const LIMIT: Duration = Duration::from_secs(60);

/// Makes a pod that is bound to the node, as its object is in the API then.
async fn bound(api: &RealApi, namespace: &str, name: &str, node: &str, spec: &Value) -> Pod {
    let mut whole = json!({"nodeName": node, "serviceAccountName": "default"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace}, "spec": whole});
    let pods: Api<PodObject> = Api::namespaced(api.admin().await, namespace);
    let made = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await;
    Pod::new(made.unwrap()).unwrap()
}

/// The node's rights follow its pods a moment later: until then reading is refused.
async fn prepared(resolver: &Resolver, pod: &Pod) -> Result<Pod, PrepareError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match resolver.prepare(pod).await {
            Err(PrepareError::Unavailable { .. }) if Instant::now() < deadline => {
                sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

#[tokio::test]
async fn a_node_reads_what_its_pods_refer_to_and_hears_of_what_comes_late() {
    let Some(api) = RealApi::get().await else { return };
    let (namespace, node) = ("resolve", "resolving");
    api.namespace(namespace).await;
    api.apply(&[
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}),
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"p": "word"},
            "metadata": {"name": "s", "namespace": namespace}}),
    ])
    .await;
    let client = api.node(node).await.client();
    let dir = tempfile::tempdir().unwrap();
    let config = ResolverConfig::new(dir.path().join("disk"), dir.path().join("memory"));
    let events = Events::unwritten(NodeRef::new(node), 100, wall());
    let (resolver, freshener) = Resolver::new(client, config, events, wall());
    let cancel = CancellationToken::new();
    let _cancelled = cancel.clone().drop_guard();
    tokio::spawn(freshener.run(cancel));
    let mut arrivals = resolver.arrivals().unwrap();

    let key = json!({"configMapKeyRef": {"name": "late", "key": "k"}});
    // What the server would add differs between servers.
    let spec = json!({
        "automountServiceAccountToken": false,
        "containers": [{"name": "a", "image": "x", "env": [{"name": "V", "valueFrom": key}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "projected": {"sources": [
            {"secret": {"name": "s"}},
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        ]}}],
    });
    let pod = bound(api, namespace, "web", node, &spec).await;
    let outcome = prepared(&resolver, &pod).await;
    let Err(PrepareError::Missing { kind, name, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((kind, name.as_str()), ("ConfigMap", "late"));
    api.apply(&[json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "came"},
        "metadata": {"name": "late", "namespace": namespace}})])
        .await;
    let woken = timeout(LIMIT, arrivals.recv()).await.unwrap().unwrap();
    assert_eq!(&woken, pod.uid());
    let resolved = prepared(&resolver, &pod).await.unwrap();
    let env = resolved.spec.as_ref().unwrap().containers[0].env.as_ref().unwrap();
    let given = env.iter().find(|v| v.name == "V").unwrap();
    assert_eq!(given.value.as_deref(), Some("came"));
    assert!(env.iter().any(|v| v.name == "KUBERNETES_SERVICE_HOST"), "{env:?}");
    let volume = dir.path().join("memory").join(pod.uid().as_str()).join("v");
    assert_eq!(std::fs::read_to_string(volume.join("p")).unwrap(), "word");
    let token = std::fs::read_to_string(volume.join("token")).unwrap();
    assert_eq!(token.split('.').count(), 3, "it is a signed token");
    let volumes = resolved.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    assert!(volumes.iter().all(|v| v.host_path.is_some()), "{volumes:?}");
    api.remove(namespace, node).await;
}
