use std::time::Duration;

use serde_json::json;
use winddown_apiserver::{ApiServer, Objects};

use crate::client::Client;
use crate::{PODS, pod, started};

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_there_is() {
    let (server, client) = started().await;
    for client in [client, Client::http1(&server)] {
        server.apply(pod("a")).unwrap();
        let mut watch = client.watch(PODS, "").await;
        assert_eq!(watch.told().await, "ADDED a");
        server.apply(pod("b")).unwrap();
        assert_eq!(watch.told().await, "ADDED b");
        assert_eq!(server.open_watches("pods"), 1);
        drop(watch);
        let ended = |o: &Objects<'_>| (o.open_watches("pods") == 0).then_some(());
        server.until("the watch has ended", ended).await.unwrap();
        server.remove("pods/default/b");
    }
}

#[tokio::test]
async fn a_watch_from_a_version_tells_everything_since_in_order() {
    let (server, client) = started().await;
    server.apply(pod("a")).unwrap();
    let version = server.version();
    server.apply(pod("b")).unwrap();
    server.patch("pods/default/a", &json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    server.remove("pods/default/b");
    let mut watch = client.watch(PODS, &format!("resourceVersion={version}")).await;
    for expected in ["ADDED b", "MODIFIED a", "DELETED b"] {
        assert_eq!(watch.told().await, expected);
    }
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_told_as_deleted() {
    let (server, client) = started().await;
    server.apply(pod("a")).unwrap();
    let query =
        format!("fieldSelector=status.phase%3DPending&resourceVersion={}", server.version());
    let mut watch = client.watch("/api/v1/pods", &query).await;
    server.patch("pods/default/a", &json!({"status": {"phase": "Running"}})).unwrap();
    server.patch("pods/default/a", &json!({"status": {"phase": "Failed"}})).unwrap();
    server.patch("pods/default/a", &json!({"status": {"phase": "Pending"}})).unwrap();
    assert_eq!(watch.told().await, "DELETED a");
    assert_eq!(watch.told().await, "ADDED a");
}

#[tokio::test]
async fn other_namespaces_and_kinds_are_not_told() {
    let (server, client) = started().await;
    let mut watch = client.watch(PODS, &format!("resourceVersion={}", server.version())).await;
    let mut other = pod("other");
    other["metadata"]["namespace"] = json!("other");
    server.apply(other).unwrap();
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
    server.apply(pod("a")).unwrap();
    assert_eq!(watch.told().await, "ADDED a");
}

#[tokio::test]
async fn a_version_that_was_compacted_is_told_to_be_gone_and_open_watches_go_on() {
    let (server, client) = started().await;
    let version = server.version();
    let mut open = client.watch(PODS, &format!("resourceVersion={version}")).await;
    server.compact();
    server.apply(pod("a")).unwrap();
    assert_eq!(open.told().await, "ADDED a");

    let mut late = client.watch(PODS, &format!("resourceVersion={version}")).await;
    assert_eq!(late.code, 200);
    let (kind, status) = late.next().await.unwrap();
    assert_eq!(kind, "ERROR");
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(late.told().await, "the end");
}

#[tokio::test]
async fn watches_end_when_their_time_is_up_when_they_are_dropped_and_when_they_fail() {
    let (server, client) = started().await;
    let mut timed = client.watch(PODS, "timeoutSeconds=1").await;
    assert_eq!(timed.told().await, "the end");

    let mut dropped = client.watch(PODS, "").await;
    let mut other = client.watch("/api/v1/nodes", "").await;
    server.drop_watches("pods");
    assert_eq!(dropped.told().await, "the end");

    server.fail_watches("nodes", 500, "InternalError");
    let (kind, status) = other.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(500)));
    assert_eq!(other.told().await, "the end");
}

#[tokio::test]
async fn bookmarks_come_to_those_who_allow_them() {
    let server =
        ApiServer::builder().bookmark_every(Duration::from_millis(20)).start().await.unwrap();
    let client = Client::of(&server);
    server.apply(pod("a")).unwrap();
    let mut watch = client.watch(PODS, "allowWatchBookmarks=true").await;
    assert_eq!(watch.told().await, "ADDED a");
    let (kind, object) = watch.next().await.unwrap();
    assert_eq!((kind.as_str(), &object["kind"]), ("BOOKMARK", &json!("Pod")));
    assert_eq!(object["metadata"]["resourceVersion"], server.version().to_string());
}

#[tokio::test]
async fn a_bookmark_can_be_asked_for_and_ends_the_initial_events() {
    let (server, client) = started().await;
    server.apply(pod("a")).unwrap();
    let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersion=1\
                 &resourceVersionMatch=NotOlderThan";
    let mut watch = client.watch(PODS, query).await;
    assert_eq!(watch.told().await, "ADDED a");
    let (kind, object) = watch.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.bookmark();
    assert_eq!(watch.told().await, "BOOKMARK ");
}

#[tokio::test]
async fn paused_watches_tell_everything_later() {
    let (server, client) = started().await;
    let mut watch = client.watch(PODS, &format!("resourceVersion={}", server.version())).await;
    server.pause_watches(true);
    server.apply(pod("a")).unwrap();
    server.apply(pod("b")).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
    assert!(early.is_err(), "a paused watch told {early:?}");
    server.pause_watches(false);
    assert_eq!(watch.told().await, "ADDED a");
    assert_eq!(watch.told().await, "ADDED b");
}
