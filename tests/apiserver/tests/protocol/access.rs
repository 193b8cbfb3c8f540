use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::ApiServer;

use crate::client::Client;
use crate::{PODS, pod, started};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_certificate_or_a_token_says_who_comes_and_nobody_is_turned_away() {
    let (server, _) = started().await;
    let identity = server.new_identity("system:node:n1", &["system:nodes"], HOUR).unwrap();
    let token = server.new_token("system:serviceaccount:a:b", &[], None);
    assert_eq!(Client::with_identity(&server, &identity).get(PODS).await.code, 200);
    assert_eq!(Client::with_token(&server, &token).get(PODS).await.code, 200);
    let refused = Client::nobody(&server).get(PODS).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (401, Some("Unauthorized")));
    assert_eq!(Client::with_token(&server, "made up").get(PODS).await.code, 401);
    let users: Vec<String> = server.requests().into_iter().map(|request| request.user).collect();
    assert_eq!(
        users,
        ["system:node:n1", "system:serviceaccount:a:b", "system:anonymous", "system:anonymous"]
    );
    server.allow_anonymous(true);
    assert_eq!(Client::nobody(&server).get(PODS).await.code, 200);
}

#[tokio::test]
async fn credentials_expire_and_are_revoked() {
    let (server, _) = started().await;
    let token = server.new_token("t", &[], Some(HOUR));
    let with_token = Client::with_token(&server, &token);
    assert_eq!(with_token.get(PODS).await.code, 200);
    server.set_clock_skew(jiff::SignedDuration::from_hours(2));
    assert_eq!(with_token.get(PODS).await.code, 401);

    let identity = server.new_identity("u", &[], HOUR).unwrap();
    let with_identity = Client::with_identity(&server, &identity);
    assert_eq!(with_identity.get(PODS).await.code, 200);
    server.set_clock_skew(jiff::SignedDuration::from_hours(4));
    assert!(with_identity.try_ask("GET", PODS, "", &Value::Null).await.is_err());
    server.set_clock_skew(jiff::SignedDuration::from_hours(2));
    server.revoke_user("u");
    assert_eq!(with_identity.get(PODS).await.code, 401);
}

#[tokio::test]
async fn a_new_authority_is_not_trusted_by_old_clients_nor_they_by_it() {
    let (server, old) = started().await;
    server.replace_authority().unwrap();
    assert!(old.try_ask("GET", PODS, "", &Value::Null).await.is_err());
    let identity = server.new_identity("u", &[], HOUR).unwrap();
    assert_eq!(Client::with_identity(&server, &identity).get(PODS).await.code, 200);
}

#[tokio::test]
async fn what_is_denied_is_answered_in_the_words_of_rbac() {
    let (server, client) = started().await;
    server.deny("patch", "pods/status");
    server.deny_in("", "list", "nodes");
    client.post(PODS, &pod("a")).await;
    let refused = client.patch(&format!("{PODS}/a/status"), &json!({})).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "pods \"a\" is forbidden: User \"test-admin\" cannot patch resource \"pods/status\" in API \
         group \"\" in the namespace \"default\""
    );
    assert_eq!(client.get("/api/v1/nodes").await.code, 403);
    assert_eq!(client.get("/api/v1/nodes/n1").await.code, 404);
    server.allow_everything();
    server.allow_only(&[("get|list", "pods")]);
    assert_eq!(client.get(PODS).await.code, 200);
    assert_eq!(client.post(PODS, &pod("b")).await.code, 403);
}

#[tokio::test]
async fn a_restricted_node_may_do_what_a_kubelet_may() {
    let server =
        ApiServer::builder().user("system:node:n1", &["system:nodes"]).start().await.unwrap();
    server.restrict_nodes(true);
    let client = Client::of(&server);
    for (name, node) in [("mine", "n1"), ("theirs", "n2")] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = json!(node);
        server.apply(object).unwrap();
    }
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).unwrap();
    let running = json!({"status": {"phase": "Running"}});
    let cordon = json!({"spec": {"unschedulable": true}});
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    for (answer, code) in [
        (client.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await, 200),
        (client.get("/api/v1/pods").await, 403),
        (client.patch(&format!("{PODS}/mine/status"), &running).await, 200),
        (client.patch(&format!("{PODS}/mine/status"), &label).await, 403),
        (client.patch(&format!("{PODS}/theirs/status"), &running).await, 403),
        (client.patch("/api/v1/nodes/n1", &cordon).await, 200),
        (client.patch("/api/v1/nodes/n1", &taint).await, 403),
        (client.delete(&format!("{PODS}/theirs"), &Value::Null).await, 403),
        (client.delete(&format!("{PODS}/mine"), &Value::Null).await, 200),
        (client.post(PODS, &pod("new")).await, 403),
    ] {
        assert_eq!(answer.code, code, "{}", answer.body);
    }
}
