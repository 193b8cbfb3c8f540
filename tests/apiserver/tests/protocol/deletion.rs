use serde_json::{Value, json};

use crate::{PODS, pod, started};

#[tokio::test]
async fn a_running_pod_waits_for_its_node_as_long_as_its_grace() {
    let (server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let web = format!("{PODS}/web");
    let answer = client.delete(&web, &Value::Null).await;
    assert_eq!(answer.body["metadata"]["deletionGracePeriodSeconds"], 20);
    let until = answer.body["metadata"]["deletionTimestamp"].as_str().unwrap().to_owned();
    let created = answer.body["metadata"]["creationTimestamp"].as_str().unwrap();
    assert!(until.as_str() > created);
    assert_eq!(answer.body["metadata"]["generation"], 2);

    // Longer is not granted, shorter is.
    let longer = client.delete(&web, &json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(longer.body["metadata"]["deletionTimestamp"], until.as_str());
    let shorter = client.delete(&format!("{web}?gracePeriodSeconds=5"), &Value::Null).await;
    assert_eq!(shorter.body["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter.body["metadata"]["deletionTimestamp"].as_str().unwrap() < until.as_str());
    assert!(server.get("pods/default/web").is_some());

    assert_eq!(client.delete(&web, &json!({"gracePeriodSeconds": 0})).await.code, 200);
    assert_eq!(server.get("pods/default/web"), None);
    assert_eq!(client.delete(&web, &Value::Null).await.code, 404);
}

#[tokio::test]
async fn a_pod_that_is_on_no_node_or_has_ended_goes_at_once() {
    let (server, client) = started().await;
    let mut unbound = pod("unbound");
    unbound["spec"]["nodeName"] = json!("");
    client.post(PODS, &unbound).await;
    client.post(PODS, &pod("ended")).await;
    server.patch("pods/default/ended", &json!({"status": {"phase": "Succeeded"}})).unwrap();
    for name in ["unbound", "ended"] {
        client.delete(&format!("{PODS}/{name}"), &Value::Null).await;
        assert_eq!(server.get(&format!("pods/default/{name}")), None, "{name}");
    }
}

#[tokio::test]
async fn a_force_deletion_is_seen_as_a_change_and_then_a_deletion() {
    let (server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let mut watch = client.watch(PODS, &format!("resourceVersion={}", server.version())).await;
    client.delete(&format!("{PODS}/web"), &json!({"gracePeriodSeconds": 0})).await;
    let (kind, object) = watch.next().await.unwrap();
    assert_eq!(kind, "MODIFIED");
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(watch.told().await, "DELETED web");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_one_goes() {
    let (server, client) = started().await;
    let mut object = pod("web");
    object["metadata"]["finalizers"] = json!(["a/b"]);
    client.post(PODS, &object).await;
    let web = format!("{PODS}/web");
    client.delete(&web, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(
        server.get("pods/default/web").unwrap()["metadata"]["deletionGracePeriodSeconds"],
        0
    );
    client.merge(&web, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get("pods/default/web"), None);
}

#[tokio::test]
async fn preconditions_protect_an_object_of_the_same_name() {
    let (server, client) = started().await;
    let first = client.post(PODS, &pod("web")).await.body["metadata"]["uid"].clone();
    server.remove("pods/default/web");
    client.post(PODS, &pod("web")).await;
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": first}});
    let refused = client.delete(&format!("{PODS}/web"), &options).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (409, Some("Conflict")));
    assert!(refused.body["message"].as_str().unwrap().contains("deleted and then recreated"));
    assert!(server.get("pods/default/web").is_some());
}

#[tokio::test]
async fn other_objects_go_at_once_and_are_answered_with_a_status() {
    let (server, client) = started().await;
    server
        .apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}))
        .unwrap();
    let answer = client.delete("/api/v1/namespaces/default/configmaps/c", &Value::Null).await;
    assert_eq!(
        (&answer.body["kind"], &answer.body["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(answer.body["details"]["name"], "c");
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_the_selector_goes() {
    let (server, client) = started().await;
    for name in ["a", "b", "c"] {
        client.post(PODS, &pod(name)).await;
    }
    let some = format!("{PODS}?labelSelector=app%20in%20(a,b)");
    client.delete(&some, &json!({"gracePeriodSeconds": 0})).await;
    let left = server.list("pods");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["metadata"]["name"], "c");
}
