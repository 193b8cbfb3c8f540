//! The conformance list of virtual-kubelet, as far as what runs the pods takes part in it.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::Objects;
use winddown_cluster::events::{Events, NodeRef};
use winddown_pod_references::{Resolver, ResolverConfig};

use crate::pods::harness::{Cluster, NODE, Running, path, pod, wall_clock};

/// A controller that resolves pods and writes events, and what else runs for it.
struct Preparing {
    running: Running,
    events: Events,
    stop: CancellationToken,
    _volumes: tempfile::TempDir,
}

impl Preparing {
    async fn start(cluster: &Cluster) -> Self {
        cluster
            .server
            .apply(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "kubernetes", "namespace": "default"},
                "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 443, "name": "https"}]}}))
            .unwrap();
        let (client, stop) = (cluster.client().await, CancellationToken::new());
        let (events, writer) = Events::new(client.clone(), NodeRef::new(NODE), 100, wall_clock());
        tokio::spawn(writer.run(stop.clone()));
        let volumes = tempfile::tempdir().unwrap();
        let config =
            ResolverConfig::new(volumes.path().join("disk"), volumes.path().join("memory"));
        let (resolver, freshener) = Resolver::new(client, config, events.clone(), wall_clock());
        tokio::spawn(freshener.run(stop.clone()));
        let running =
            cluster.start_as(true, |controller| controller.with_prepare(Arc::new(resolver))).await;
        Self { running: running.ready().await, events, stop, _volumes: volumes }
    }

    async fn stop(self) {
        self.running.stop().await;
        self.stop.cancel();
    }
}

/// A pod whose only variable is a key of this object.
fn naming(name: &str, reference: &str, optional: bool) -> Value {
    let mut object = pod(name);
    let source = json!({reference: {"name": "nope", "key": "k", "optional": optional}});
    object["spec"]["containers"][0]["env"] = json!([{"name": "V", "valueFrom": source}]);
    object
}

/// Waits for a Warning of this reason about the pod.
async fn until_warned(cluster: &Cluster, name: &str, reason: &str) {
    let warned = |objects: &Objects<'_>| {
        let events = objects.list("events.events.k8s.io/default");
        let about = |event: &Value| {
            event["regarding"]["name"] == name
                && event["reason"] == reason
                && event["type"] == "Warning"
        };
        events.iter().any(|event| about(event)).then_some(())
    };
    cluster.server.until(&format!("{name}: {reason}"), warned).await.unwrap();
}

#[tokio::test]
async fn c7_to_c10_a_pod_starts_without_what_is_optional_and_not_without_what_is_mandatory() {
    for (reference, kind) in [("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")] {
        let cluster = Cluster::new().await;
        let preparing = Preparing::start(&cluster).await;
        cluster.server.apply(naming("mandatory", reference, false)).unwrap();
        until_warned(&cluster, "mandatory", &format!("Mandatory{kind}NotFound")).await;
        cluster.server.apply(naming("optional", reference, true)).unwrap();
        cluster.until_phase("optional", "Running").await;
        until_warned(&cluster, "optional", &format!("Optional{kind}NotFound")).await;
        let left = preparing.events.flush(Instant::now() + Duration::from_secs(30)).await;
        assert!(left.is_empty(), "{left:?}");

        let pods = cluster.node.pods();
        let names: Vec<_> = pods.iter().map(|one| one.name().to_string()).collect();
        assert_eq!(names, ["optional"]);
        let waits = |objects: &Objects<'_>| {
            let status = objects.get(&path("mandatory"))?["status"].clone();
            let reason = &status["containerStatuses"][0]["state"]["waiting"]["reason"];
            (status["phase"] == "Pending" && reason == "CreateContainerConfigError").then_some(())
        };
        cluster.server.until("its status says why it waits", waits).await.unwrap();
        preparing.stop().await;
    }
}
