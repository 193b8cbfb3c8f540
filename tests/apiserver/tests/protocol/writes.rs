use serde_json::{Value, json};

use crate::client::Client;
use crate::{PODS, pod, started};

#[tokio::test]
async fn a_new_object_gets_uid_version_time_and_defaults() {
    let (_server, client) = started().await;
    let made = client.post(PODS, &pod("web")).await;
    assert_eq!(made.code, 201);
    let meta = &made.body["metadata"];
    assert_eq!((&meta["namespace"], &meta["generation"]), (&json!("default"), &json!(1)));
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert!(meta["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    assert!(meta["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(made.body["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(made.body["spec"]["restartPolicy"], "Always");
}

#[tokio::test]
async fn a_name_is_made_of_generate_name_and_never_twice() {
    let (_server, client) = started().await;
    let mut object = pod("x");
    object["metadata"] = json!({"generateName": "web-"});
    let first = client.post(PODS, &object).await.body["metadata"]["name"].clone();
    let second = client.post(PODS, &object).await.body["metadata"]["name"].clone();
    assert!(first.as_str().unwrap().starts_with("web-") && first != second);
}

#[tokio::test]
async fn what_cannot_be_created_is_refused_with_the_reason() {
    let (_server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let mut nameless = pod("x");
    nameless["metadata"] = json!({});
    let mut versioned = pod("x");
    versioned["metadata"]["resourceVersion"] = json!("7");
    let mut empty = pod("x");
    empty["spec"]["containers"] = json!([]);
    let mut mirror = pod("x");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    mirror["spec"]["nodeName"] = json!("");
    let elsewhere = "/api/v1/namespaces/nowhere/pods";
    for (path, object, code, reason) in [
        (PODS, pod("web"), 409, "AlreadyExists"),
        (PODS, nameless, 422, "Invalid"),
        (PODS, versioned, 500, ""),
        (PODS, empty, 422, "Invalid"),
        (PODS, mirror, 422, "Invalid"),
        (elsewhere, pod("web"), 404, "NotFound"),
        ("/api/v1/namespaces/default/nothing", pod("web"), 404, "NotFound"),
    ] {
        let refused = client.post(path, &object).await;
        let said = refused.body["reason"].as_str().unwrap_or_default();
        assert_eq!((refused.code, said), (code, reason), "{object}");
        assert_eq!(refused.body["kind"], "Status");
    }
    let missing = client.get(&format!("{PODS}/none")).await;
    assert_eq!(missing.body["message"], "pods \"none\" not found");
    assert_eq!(missing.body["details"], json!({"name": "none", "kind": "pods"}));
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let (server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let both = json!({
        "metadata": {"annotations": {"a": "1"}},
        "spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Running"},
    });
    client.patch(&format!("{PODS}/web/status"), &both).await;
    let stored = server.get("pods/default/web").unwrap();
    assert_eq!(stored["status"]["phase"], "Running");
    assert_eq!(stored["metadata"]["annotations"]["a"], "1");
    assert_eq!(stored["spec"].get("activeDeadlineSeconds"), None);

    let both = json!({"spec": {"activeDeadlineSeconds": 5}, "status": {"phase": "Failed"}});
    client.patch(&format!("{PODS}/web"), &both).await;
    let stored = server.get("pods/default/web").unwrap();
    assert_eq!(stored["status"]["phase"], "Running");
    assert_eq!(stored["spec"]["activeDeadlineSeconds"], 5);
    assert_eq!(stored["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_whole_status_that_is_put_replaces_the_status_and_keeps_the_qos_class() {
    let (_server, client) = started().await;
    let mut made = client.post(PODS, &pod("web")).await.body;
    made["status"] = json!({"phase": "Running", "reason": "Because"});
    let put = client.put(&format!("{PODS}/web/status"), &made).await;
    assert_eq!(
        put.body["status"],
        json!({"phase": "Running", "reason": "Because", "qosClass": "BestEffort"})
    );
    made["status"]["qosClass"] = json!("Guaranteed");
    made["metadata"]["resourceVersion"] = json!("");
    assert_eq!(client.put(&format!("{PODS}/web/status"), &made).await.code, 422);
}

#[tokio::test]
async fn a_container_that_has_terminated_runs_again_only_as_its_restart_policy_says() {
    let (_server, client) = started().await;
    let container = |name: &str| json!({"name": name, "image": "i"});
    let mut made = pod("web");
    made["spec"]["restartPolicy"] = json!("OnFailure");
    made["spec"]["initContainers"] = json!([container("init"), container("sidecar")]);
    made["spec"]["initContainers"][1]["restartPolicy"] = json!("Always");
    made["spec"]["ephemeralContainers"] = json!([container("debug")]);
    client.post(PODS, &made).await;
    let status = format!("{PODS}/web/status");
    let state = |name: &str, state: Value| json!([{"name": name, "state": state}]);
    for (list, name, code, answer) in [
        ("initContainerStatuses", "init", 0, 422),
        ("initContainerStatuses", "init", 1, 200),
        ("initContainerStatuses", "sidecar", 0, 200),
        ("ephemeralContainerStatuses", "debug", 1, 422),
        ("containerStatuses", "a", 0, 422),
        ("containerStatuses", "a", 1, 200),
    ] {
        let exited = state(name, json!({"terminated": {"exitCode": code}}));
        client.merge(&status, &json!({"status": {list: exited}})).await;
        let runs = state(name, json!({"running": {}}));
        let told = client.merge(&status, &json!({"status": {list: runs}})).await;
        assert_eq!(told.code, answer, "{list}, {name}, exit code {code}: {}", told.body);
        client.merge(&status, &json!({"status": {list: null}})).await;
    }
}

#[tokio::test]
async fn a_write_with_an_old_version_or_another_uid_is_a_conflict() {
    let (server, client) = started().await;
    let made = client.post(PODS, &pod("web")).await.body;
    server.patch("pods/default/web", &json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    let web = format!("{PODS}/web");
    let status = format!("{PODS}/web/status");
    let old = made["metadata"]["resourceVersion"].clone();
    for answer in [
        client.put(&web, &made).await,
        client.patch(&web, &json!({"metadata": {"resourceVersion": old}})).await,
        client.put(&web, &json!({"metadata": {"uid": "other"}})).await,
    ] {
        assert_eq!((answer.code, answer.body["reason"].as_str()), (409, Some("Conflict")));
    }
    // In a patch another UID is not a conflict.
    for answer in [
        client.patch(&status, &json!({"metadata": {"uid": "other"}, "status": {}})).await,
        client.merge(&status, &json!({"metadata": {"uid": "other"}})).await,
    ] {
        assert_eq!((answer.code, answer.body["reason"].as_str()), (422, Some("Invalid")));
        let cause = &answer.body["details"]["causes"][0];
        assert_eq!(cause["field"], "metadata.uid");
        assert_eq!(cause["message"], "Invalid value: \"other\": field is immutable");
    }
    let uid = made["metadata"]["uid"].clone();
    let good = json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}});
    assert_eq!(client.patch(&status, &good).await.code, 200);
}

#[tokio::test]
async fn a_pod_has_one_address_of_each_family() {
    let (_server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let status = format!("{PODS}/web/status");
    let addresses = |all: serde_json::Value| json!({"status": {"podIPs": all}});
    let first =
        client.patch(&status, &addresses(json!([{"ip": "10.1.1.1"}, {"ip": "fd::1"}]))).await;
    assert_eq!(first.body["status"]["podIP"], "10.1.1.1");
    let second = json!({"status": {"podIP": "10.1.1.2", "podIPs": [{"ip": "10.1.1.2"}]}});
    assert_eq!(client.patch(&status, &second).await.code, 422);
    let host = json!({"status": {"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}});
    assert_eq!(client.patch(&status, &host).await.code, 422);
    let replaced = json!({"status": {
        "podIP": "10.1.1.2", "podIPs": [{"$patch": "replace"}, {"ip": "10.1.1.2"}],
    }});
    let replaced = client.patch(&status, &replaced).await.body;
    assert_eq!(replaced["status"]["podIPs"], json!([{"ip": "10.1.1.2"}]));
    let older = client.patch(&status, &json!({"status": {"podIP": "10.1.1.3"}})).await.body;
    assert_eq!(older["status"]["podIPs"], json!([{"ip": "10.1.1.3"}]));
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_new_version() {
    let (server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let patch = json!({"status": {"phase": "Running"}});
    let first = client.patch(&format!("{PODS}/web/status"), &patch).await.body;
    let version = server.version();
    let second = client.patch(&format!("{PODS}/web/status"), &patch).await.body;
    assert_eq!((first, version), (second, server.version()));
}

#[tokio::test]
async fn a_pods_spec_stays_but_for_images_deadlines_and_more_tolerations() {
    let (_server, client) = started().await;
    client.post(PODS, &pod("web")).await;
    let web = format!("{PODS}/web");
    for (spec, code) in [
        (json!({"containers": [{"name": "a", "image": "y"}]}), 200),
        (json!({"activeDeadlineSeconds": 50}), 200),
        (json!({"activeDeadlineSeconds": 60}), 422),
        (json!({"tolerations": [{"key": "a"}]}), 200),
        (json!({"tolerations": []}), 422),
        (json!({"nodeName": "n2"}), 422),
        (json!({"containers": [{"name": "a", "command": ["x"]}]}), 422),
        (json!({"terminationGracePeriodSeconds": 1}), 422),
    ] {
        assert_eq!(client.patch(&web, &json!({"spec": spec})).await.code, code, "{spec}");
    }
}

#[tokio::test]
async fn an_ended_container_of_a_pod_that_never_restarts_stays_ended() {
    let (server, client) = started().await;
    let mut object = pod("once");
    object["spec"]["restartPolicy"] = json!("Never");
    object["status"] = json!({"containerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0}}},
    ]});
    server.apply(object).unwrap();
    let again = json!({"status": {"containerStatuses": [{"name": "a", "state": {"running": {}}}]}});
    let refused = client.patch(&format!("{PODS}/once/status"), &again).await;
    assert_eq!(refused.code, 422);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "status.containerStatuses[0].state");
}

#[tokio::test]
async fn a_lease_is_created_by_a_put_and_then_needs_its_version() {
    let (_server, client) = started().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"},
        "spec": {"holderIdentity": "n1"},
    });
    assert_eq!(client.put(path, &lease).await.code, 201);
    assert_eq!(client.put(path, &lease).await.code, 422);
    let mut stored = client.get(path).await.body;
    stored["spec"]["holderIdentity"] = json!("n2");
    assert_eq!(client.put(path, &stored).await.code, 200);
    assert_eq!(client.put(path, &stored).await.code, 409);
}

#[tokio::test]
async fn a_node_is_created_with_its_status() {
    let (_server, client) = started().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let made = client.post("/api/v1/nodes", &node).await;
    assert_eq!(made.body["status"]["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn a_dry_run_answers_and_keeps_nothing() {
    let (server, client) = started().await;
    assert_eq!(client.post(&format!("{PODS}?dryRun=All"), &pod("web")).await.code, 201);
    assert_eq!(server.get("pods/default/web"), None);
}

#[tokio::test]
async fn an_apply_patch_creates_and_then_merges() {
    let (server, client) = started().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let apply = "application/apply-patch+yaml";
    let path = "/api/v1/nodes/n1?fieldManager=t&force=true";
    assert_eq!(client.ask("PATCH", path, apply, &node).await.code, 201);
    let labelled = json!({"metadata": {"labels": {"a": "1"}}});
    assert_eq!(client.ask("PATCH", path, apply, &labelled).await.code, 200);
    assert_eq!(server.get("nodes/n1").unwrap()["metadata"]["labels"]["a"], "1");
    let json_patch = "application/json-patch+json";
    assert_eq!(client.ask("PATCH", path, json_patch, &json!([])).await.code, 415);
}

#[tokio::test]
async fn http_1_and_http_2_are_both_spoken() {
    let (server, client) = started().await;
    assert_eq!(client.get("/version").await.body["major"], "1");
    assert_eq!(Client::http1(&server).get("/version").await.body["major"], "1");
    assert_eq!(client.get("/readyz").await.body, "ok");
    assert_eq!(client.get("/apis/policy/v1").await.body["groupVersion"], "policy/v1");
}

#[tokio::test]
async fn an_event_is_refused_that_lacks_what_events_must_have() {
    let (_server, client) = started().await;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reportingController": "winddown.dev/agent", "reportingInstance": "n1", "action": "Killing",
        "reason": "Killing", "note": "Stopping container a",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
    });
    for (field, value) in [
        ("eventTime", json!(null)),
        ("reportingController", json!("")),
        ("action", json!("")),
        ("reason", json!("x".repeat(129))),
        ("note", json!("x".repeat(1025))),
        ("type", json!("Bad")),
        ("regarding", json!({"kind": "Pod", "namespace": "other", "name": "web"})),
        ("series", json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"})),
    ] {
        let mut bad = event.clone();
        bad[field] = value;
        assert_eq!(client.post(path, &bad).await.code, 422, "{field}");
    }
    assert_eq!(client.post(path, &event).await.code, 201);
    let more = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    assert_eq!(client.patch(&format!("{path}/e"), &more).await.code, 200);
    assert_eq!(client.patch(&format!("{path}/e"), &json!({"note": "other"})).await.code, 422);
}

#[tokio::test]
async fn a_node_with_two_equal_taints_or_addresses_or_a_new_provider_is_refused() {
    let (server, client) = started().await;
    server
        .apply(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "spec": {"providerID": "a"},
        }))
        .unwrap();
    let taint = json!({"key": "k", "effect": "NoExecute"});
    let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
    for (path, patch) in [
        ("/api/v1/nodes/n1", json!({"spec": {"taints": [taint, taint]}})),
        ("/api/v1/nodes/n1", json!({"spec": {"taints": [{"key": "k", "effect": "Never"}]}})),
        ("/api/v1/nodes/n1", json!({"spec": {"providerID": "b"}})),
        ("/api/v1/nodes/n1/status", json!({"status": {"addresses": [address, address]}})),
    ] {
        assert_eq!(client.merge(path, &patch).await.code, 422, "{patch}");
    }
}
