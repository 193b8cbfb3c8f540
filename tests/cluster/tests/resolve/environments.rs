use serde_json::json;
use winddown_cluster::pods::{Prepare, PrepareError};
use winddown_shared::Pod;

use crate::resolve::bed::{Bed, pod, pod_of_key, value};

#[tokio::test]
async fn all_that_a_container_refers_to_becomes_literal() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "map", "FROM": "$(HOME)"}));
    bed.secret("s", &[("k", "secret")]);
    bed.server
        .apply(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"clusterIP": "10.0.0.9", "ports": [{"port": 5432}]}}))
        .unwrap();
    let web = pod(
        "web",
        &json!({}),
        &json!({
            "env": [
                {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "URL", "value": "$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "m"}}],
        }),
    );
    let resolved = bed.prepare(&web).await.unwrap();
    assert_eq!(value(&resolved, "M").unwrap(), "map");
    assert_eq!(value(&resolved, "S").unwrap(), "secret");
    assert_eq!(value(&resolved, "FROM").unwrap(), "$$(HOME)", "no reference, in a runtime's words");
    assert_eq!(value(&resolved, "DB_SERVICE_HOST").unwrap(), "10.0.0.9");
    assert_eq!(value(&resolved, "KUBERNETES_SERVICE_PORT_HTTPS").unwrap(), "443");
    let container = &resolved.spec.as_ref().unwrap().containers[0];
    assert_eq!(container.env_from, None);
    let left = container.env.iter().flatten().filter(|v| v.value.is_none()).count();
    assert_eq!(left, 1, "the pod's address is the runtime's to tell");
    assert_eq!(resolved.uid(), web.uid());
    assert_eq!(bed.told(), []);
}

#[tokio::test]
async fn a_pod_hears_of_a_service_that_was_made_after_another_pods() {
    let bed = Bed::new().await;
    let service = |name: &str, address: &str| {
        let object = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"clusterIP": address, "ports": [{"port": 5432}]}});
        bed.server.apply(object).unwrap();
    };
    service("db", "10.0.0.9");
    let first = bed.prepare(&pod("web", &json!({}), &json!({}))).await.unwrap();
    service("cache", "10.0.0.10");
    let second = bed.prepare(&pod("client", &json!({}), &json!({}))).await.unwrap();
    assert_eq!(value(&first, "CACHE_SERVICE_HOST"), None);
    assert_eq!(value(&second, "DB_SERVICE_HOST").unwrap(), "10.0.0.9");
    assert_eq!(value(&second, "CACHE_SERVICE_HOST").unwrap(), "10.0.0.10");
}

#[tokio::test]
async fn a_pod_without_service_links_hears_of_the_api_server_alone_and_lists_nothing() {
    let bed = Bed::new().await;
    let web = pod("web", &json!({"enableServiceLinks": false}), &json!({}));
    let resolved = bed.prepare(&web).await.unwrap();
    assert_eq!(value(&resolved, "KUBERNETES_SERVICE_HOST").unwrap(), "10.0.0.1");
    assert_eq!(bed.server.count("list", "services"), 0);
    assert_eq!(bed.server.count("get", "services"), 1);
}

#[tokio::test]
async fn variables_are_resolved_once_and_a_config_map_that_goes_blocks_nothing() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "old"}));
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    let first = bed.prepare(&web).await.unwrap();
    bed.map("m", &json!({"k": "new"}));
    let asked = bed.server.requests().len();
    let second = bed.prepare(&web).await.unwrap();
    assert_eq!(second.spec, first.spec);
    bed.server.remove("configmaps/shop/m");
    assert_eq!(bed.prepare(&web).await.unwrap().spec, first.spec);
    assert_eq!(bed.server.requests().len(), asked, "nothing is asked again");
    assert_eq!(bed.told(), []);
}

#[tokio::test]
async fn a_container_that_is_added_later_is_resolved_when_it_comes() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "old"}));
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    bed.prepare(&web).await.unwrap();
    bed.map("m", &json!({"k": "new"}));
    let mut object = web.object().clone();
    let debug = json!([{"name": "debug", "env": [{"name": "V",
        "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}]);
    object.spec.as_mut().unwrap().ephemeral_containers =
        Some(serde_json::from_value(debug).unwrap());
    let later = bed.prepare(&Pod::new(object).unwrap()).await.unwrap();
    assert_eq!(value(&later, "V").unwrap(), "old", "what runs keeps what it was given");
    let debug = &later.spec.as_ref().unwrap().ephemeral_containers.as_ref().unwrap()[0];
    let given = debug.env.as_ref().unwrap().iter().find(|v| v.name == "V").unwrap();
    assert_eq!(given.value.as_deref(), Some("new"));
}

#[tokio::test]
async fn after_a_restart_a_container_is_added_to_a_pod_whose_configmap_is_gone() {
    let mut bed = Bed::new().await;
    bed.map("m", &json!({"k": "old"}));
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    let given = bed.prepare(&web).await.unwrap();
    bed.restart_agent();
    bed.server.remove("configmaps/shop/m");
    bed.resolver.adopt(&given);
    let mut object = web.object().clone();
    object.spec.as_mut().unwrap().ephemeral_containers =
        Some(serde_json::from_value(json!([{"name": "debug"}])).unwrap());
    let later = bed.prepare(&Pod::new(object).unwrap()).await.unwrap();
    assert_eq!(value(&later, "V").unwrap(), "old", "what runs keeps what it was given");
    assert!(later.spec.as_ref().unwrap().ephemeral_containers.is_some());
}

#[tokio::test]
async fn a_runtime_class_becomes_the_handler_that_it_names() {
    let bed = Bed::new().await;
    let web = pod("web", &json!({"runtimeClassName": "sandboxed"}), &json!({}));
    let missing = bed.prepare(&web).await.unwrap_err();
    assert!(
        matches!(&missing, PrepareError::Unavailable { what, .. }
        if what == "RuntimeClass \"sandboxed\" not found"),
        "{missing:?}"
    );
    bed.server
        .apply(json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "sandboxed"}, "handler": "runsc"}))
        .unwrap();
    let resolved = bed.prepare(&web).await.unwrap();
    let handler = |pod: &Pod| pod.spec.as_ref().unwrap().runtime_class_name.clone();
    assert_eq!(handler(&resolved).as_deref(), Some("runsc"));
    // It stays what it was, and pods without a class ask for none.
    bed.server.remove("/apis/node.k8s.io/v1/runtimeclasses/sandboxed");
    assert_eq!(handler(&bed.prepare(&web).await.unwrap()).as_deref(), Some("runsc"));
    let plain = pod("plain", &json!({}), &json!({}));
    assert_eq!(handler(&bed.prepare(&plain).await.unwrap()), None);
}
