//! Events as a real server takes them: it checks every field.

use std::time::Duration;

use k8s_openapi::api::events::v1 as api;
use kube::api::{Api, ListParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_cluster::events::{EventDraft, Events, NodeRef, Subject};
use winddown_shared::{Event, PodRef, PodUid, Recorder as _};

use super::RealApi;
use super::server::wall;

#[tokio::test]
async fn a_node_writes_events_and_series_of_them() {
    let Some(server) = RealApi::get().await else { return };
    let (namespace, node) = ("events", "telling");
    server.namespace(namespace).await;
    let client = server.node(node).await.client();
    let (events, writer) = Events::new(client, NodeRef::new(node), 100, wall());
    let cancel = CancellationToken::new();
    let _cancelled = cancel.clone().drop_guard();
    tokio::spawn(writer.run(cancel));

    let pod = |name: &str| PodRef {
        namespace: namespace.into(),
        name: name.into(),
        uid: PodUid::new("6d2f0e0c-5a5f-4b3c-9a57-0f0f0f0f0f0f"),
    };
    for _ in 0..3 {
        events.record(&Event::ExceededGracePeriod { pod: pod("web") });
    }
    events.record(&Event::EvictionStarted {
        pod: pod("web"),
        signal: "memory.available",
        message: "low ".repeat(500).into(),
        annotations: vec![
            ("starved_resource", "memory".into()),
            ("offending_containers", "".into()),
        ],
        grace: Duration::ZERO,
    });
    events.record(&Event::ShutdownStarted { pods: 1, budget: Duration::ZERO });
    let container = Subject::pod(&pod(&"long-name.".repeat(25))).at("spec.containers{main}");
    events.send(EventDraft::warning(container, "FailedMount", "no such \"volume\""));
    let left = events.flush(Instant::now() + Duration::from_secs(60)).await;
    let counts = events.counts();
    assert_eq!((left.len(), counts.refused, counts.dropped), (0, 0, 0), "{counts:?}");

    let admin = server.admin().await;
    let all = Api::<api::Event>::namespaced(admin.clone(), namespace);
    let all = all.list(&ListParams::default()).await.unwrap().items;
    let exceeded: Vec<_> =
        all.iter().filter(|e| e.reason.as_deref() == Some("ExceededGracePeriod")).collect();
    assert_eq!(exceeded.len(), 1);
    assert_eq!(exceeded[0].series.as_ref().unwrap().count, 3);
    assert_eq!(all.len(), 3, "{all:?}");
    let of_nodes = Api::<api::Event>::namespaced(admin, "default");
    let of_nodes = of_nodes.list(&ListParams::default()).await.unwrap().items;
    assert!(of_nodes.iter().any(|e| {
        e.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(node))
    }));
    server.remove(namespace, node).await;
}
