use serde_json::{Value, json};
use winddown_apiserver::ApiServer;

use crate::{PODS, pod, started};

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

fn filled(server: &ApiServer) {
    for (name, node, phase) in
        [("a", "n1", "Running"), ("b", "n2", "Running"), ("c", "n1", "Failed")]
    {
        let mut object = pod(name);
        object["spec"]["nodeName"] = json!(node);
        object["status"] = json!({"phase": phase});
        server.apply(object).unwrap();
    }
    let mut other = pod("d");
    other["metadata"]["namespace"] = json!("other");
    server.apply(other).unwrap();
}

#[tokio::test]
async fn lists_are_limited_by_namespace_labels_and_fields() {
    let (server, client) = started().await;
    filled(&server);
    for (path, expected) in [
        ("/api/v1/pods", &["a", "b", "c", "d"][..]),
        (PODS, &["a", "b", "c"]),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", &["a", "c", "d"]),
        ("/api/v1/pods?fieldSelector=spec.nodeName=n1,status.phase!=Failed", &["a", "d"]),
        ("/api/v1/pods?fieldSelector=metadata.namespace%3Dother", &["d"]),
        ("/api/v1/pods?fieldSelector=metadata.name==b", &["b"]),
        ("/api/v1/pods?labelSelector=app%3Da", &["a"]),
        ("/api/v1/pods?labelSelector=app%20in%20(a,b),app!=a", &["b"]),
        ("/api/v1/pods?labelSelector=app+notin+(a,b),app", &["c", "d"]),
        ("/api/v1/pods?labelSelector=!app", &[]),
    ] {
        assert_eq!(names(&client.get(path).await.body), expected, "{path}");
    }
    let unknown = client.get("/api/v1/pods?fieldSelector=spec.dnsPolicy=x").await;
    assert_eq!((unknown.code, unknown.body["reason"].as_str()), (400, Some("BadRequest")));
}

#[tokio::test]
async fn a_list_names_its_kind_and_version_and_its_items_do_not() {
    let (server, client) = started().await;
    filled(&server);
    let list = client.get(PODS).await.body;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["metadata"]["resourceVersion"], server.version().to_string());
    assert!(list["items"][0].get("kind").is_none());
}

#[tokio::test]
async fn pages_show_the_moment_of_the_first_one() {
    let (server, client) = started().await;
    filled(&server);
    let first = client.get(&format!("{PODS}?limit=2")).await.body;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server.apply(pod("aa")).unwrap();
    server.remove("pods/default/c");
    let next = first["metadata"]["continue"].as_str().unwrap();
    let page = format!("{PODS}?limit=2&continue={next}");
    let second = client.get(&page).await.body;
    assert_eq!(names(&second), ["c"]);
    assert_eq!(second["metadata"].get("continue"), None);
    server.compact();
    assert_eq!(client.get(&page).await.code, 410);
}

#[tokio::test]
async fn a_list_of_a_version_is_exact_gone_or_not_there_yet() {
    let (server, client) = started().await;
    filled(&server);
    let version = server.version();
    server.remove("pods/default/a");
    let exact = format!("{PODS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&exact).await.body), ["a", "b", "c"]);
    assert_eq!(names(&client.get(&format!("{PODS}?resourceVersion=0")).await.body), ["b", "c"]);
    server.compact();
    assert_eq!(client.get(&exact).await.code, 410);
    assert_eq!(client.get(&format!("{PODS}?resourceVersion=999999")).await.code, 504);
}

#[tokio::test]
async fn who_wants_metadata_alone_gets_that() {
    let (server, client) = started().await;
    server
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="},
        }))
        .unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let client = client
        .accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
    let list = client.get(secrets).await.body;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    let (_, event) = client.watch(secrets, "").await.next().await.unwrap();
    let one = client.get(&format!("{secrets}/s")).await.body;
    for object in [&list["items"][0], &one, &event] {
        assert_eq!(object["kind"], "PartialObjectMetadata");
        assert_eq!(object["metadata"]["name"], "s");
        assert_eq!(object.get("data"), None);
    }
}
