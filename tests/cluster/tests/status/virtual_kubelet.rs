//! The scenarios of virtual-kubelet's own tests that are about statuses.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::{ApiServer, Fault};
use winddown_cluster::status::{MetadataChange, MetadataError, change_metadata};
use winddown_shared::PodUid;

use crate::status::world::*;

/// `TestPodStatusDelete`.
#[tokio::test]
async fn the_end_of_a_container_is_written_to_a_pod_that_is_being_deleted() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", running());
    server.delete("pods/default/web", Some(30)).unwrap();
    let agent = Agent::start(&server, None).await;
    agent.outbox.api_saw(&to_pod(&in_api(&server, "web")));
    agent.outbox.submit(ended(&pod));
    agent.told(pod.label()).await;
    let there = in_api(&server, "web");
    assert_eq!(there["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(there["status"]["phase"], "Failed");
    assert!(there["metadata"]["deletionTimestamp"].is_string(), "it is deleted by others");
    agent.cut().await;
}

/// `TestUpdatePodStatusUsesKubernetesResourceVersion`. No version goes with a patch, so that what somebody else wrote in between neither fails it nor is
/// undone by it.
#[tokio::test]
async fn a_write_in_between_neither_fails_the_status_nor_is_undone() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", json!({ "phase": "Pending" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.api_saw(&pod);
    server.patch("pods/default/web", &json!({ "metadata": { "labels": { "a": "b" } } })).unwrap();
    agent.outbox.submit(says(&pod, running()));
    agent.told(pod.label()).await;
    let there = in_api(&server, "web");
    assert_eq!(there["status"]["phase"], "Running");
    assert_eq!(there["metadata"]["labels"]["a"], "b");
    assert_eq!(server.count("patch", "pods/status"), 1, "at the first attempt");
    agent.cut().await;
}

/// `TestUpdatePodStatusRejectsZeroResourceVersion`.
#[tokio::test]
async fn a_status_carries_no_version_and_the_uid() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", json!({ "phase": "Pending" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.submit(says(&pod, running()));
    agent.told(pod.label()).await;
    let requests = server.requests();
    let patch = requests.iter().find(|r| r.right.verb == "patch").unwrap();
    assert_eq!(patch.content_type, "application/strategic-merge-patch+json");
    assert_eq!(patch.body["metadata"], json!({ "uid": pod.uid().as_str() }));
    agent.cut().await;
}

/// `TestReCreatePodRace`.
#[tokio::test]
async fn a_pod_that_was_made_anew_survives_conflicts_and_not_found() {
    let server = ApiServer::start().await.unwrap();
    let old = make(&server, "web", json!({ "phase": "Running" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.api_saw(&old);
    // A conflict.
    server.fault(Fault::on("patch", "pods/status").times(1).status(409).reason("Conflict"));
    agent.outbox.submit(says(&old, running()));
    agent.told(old.label()).await;
    assert!(in_api(&server, "web")["status"]["containerStatuses"].is_array());
    // Not found.
    server.remove("pods/default/web");
    agent.outbox.submit(ended(&old));
    agent.told(old.label()).await;
    // Another UID.
    let new = make(&server, "web", json!({ "phase": "Running" }));
    assert_ne!(new.uid(), old.uid());
    agent.outbox.submit(ended(&old));
    agent.told(old.label()).await;
    assert_eq!(
        in_api(&server, "web")["status"],
        json!({ "phase": "Running", "qosClass": "BestEffort" })
    );
    assert_eq!(agent.outbox.final_status(old.uid()), None);
    agent.cut().await;
}

/// `TestUpdatePodStatusWithNilProviderStatus`.
#[tokio::test]
async fn a_pod_of_which_nothing_was_said_is_left_untouched() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", json!({ "phase": "Pending" }));
    let other = make(&server, "other", json!({ "phase": "Pending" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.api_saw(&pod);
    agent.outbox.submit(says(&other, running()));
    agent.told(other.label()).await;
    agent.told(pod.label()).await;
    assert_eq!(to_pod(&in_api(&server, "web")).object(), pod.object());
    agent.cut().await;
}

/// `E2EPodStatusUpdate`. There the annotation came along with the status, and edits by users were undone by it. Here it is
/// asked for by name.
#[tokio::test]
async fn an_annotation_reaches_the_api_although_the_status_is_unchanged() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", running());
    server
        .patch("pods/default/web", &json!({ "metadata": { "annotations": { "user": "x" } } }))
        .unwrap();
    let client = client(&server).await;
    let change = MetadataChange {
        annotations: [("a".to_owned(), Some("b".to_owned())), ("no".to_owned(), None)].into(),
        ..MetadataChange::default()
    };
    change_metadata(&client, pod.label(), &change).await.unwrap();
    let there = in_api(&server, "web");
    assert_eq!(there["metadata"]["annotations"], json!({ "a": "b", "user": "x" }));
    assert_eq!(
        there["status"],
        serde_json::from_str::<Value>(&in_api(&server, "web")["status"].to_string()).unwrap()
    );
    let mut later = pod.label().clone();
    later.uid = PodUid::new("another");
    let error = change_metadata(&client, &later, &change).await.unwrap_err();
    assert!(matches!(error, MetadataError::Gone { .. }), "{error}");
}

/// virtual-kubelet#899: the node lifecycle controller marks the pods of a silent node as not ready. The watch brings
/// it, and it is put right without another word from the provider.
#[tokio::test]
async fn what_others_have_changed_is_put_right_and_what_is_theirs_stays() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", json!({ "phase": "Pending" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.submit(says(&pod, running()));
    agent.told(pod.label()).await;
    let theirs = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "False", "reason": "NodeNotReady" },
        { "type": "example.com/theirs", "status": "True" }] } });
    let seen = server.patch("pods/default/web", &theirs).unwrap();
    agent.outbox.api_saw(&to_pod(&seen));
    let there = server
        .within(Duration::from_secs(30), "ready again", |o| {
            let pod = o.get("pods/default/web")?;
            (condition(&pod, "Ready")["status"] == "True").then_some(pod)
        })
        .await
        .unwrap();
    assert_eq!(condition(&there, "example.com/theirs")["status"], "True");
    assert_eq!(condition(&there, "Ready")["reason"], Value::Null);
    agent.cut().await;
}
