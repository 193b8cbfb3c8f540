use serde_json::{Value, json};
use winddown_apiserver::ApiServer;

use crate::client::{Answer, Client};
use crate::{PODS, pod, started};

async fn evicted(client: &Client, options: Value) -> Answer {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"},
        "deleteOptions": options,
    });
    client.post(&format!("{PODS}/web/eviction"), &eviction).await
}

fn running(server: &ApiServer, ready: &str) {
    let mut object = pod("web");
    object["status"] =
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    server.apply(object).unwrap();
}

fn budget(server: &ApiServer, name: &str, status: &Value) {
    server
        .apply(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status,
        }))
        .unwrap();
}

#[tokio::test]
async fn without_a_budget_a_pod_is_marked_and_deleted_with_its_grace() {
    let (server, client) = started().await;
    running(&server, "True");
    let answer = evicted(&client, json!({})).await;
    assert_eq!((answer.code, answer.body["status"].as_str()), (201, Some("Success")));
    let pod = server.get("pods/default/web").unwrap();
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 20);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
}

#[tokio::test]
async fn a_budget_lets_pods_go_until_it_is_used_up() {
    let (server, client) = started().await;
    running(&server, "True");
    let left = json!({
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1,
    });
    budget(&server, "b", &left);
    assert_eq!(evicted(&client, json!({"gracePeriodSeconds": 0})).await.code, 201);
    let status = server.get("poddisruptionbudgets/default/b").unwrap()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["web"].is_string());

    running(&server, "True");
    let refused = evicted(&client, json!({})).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (429, Some("TooManyRequests")));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert!(!refused.headers.contains_key("retry-after"));
    assert_eq!(
        refused.body["message"],
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert!(server.get("pods/default/web").unwrap()["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test]
async fn a_budget_that_has_not_been_looked_at_yet_asks_to_come_back_in_ten_seconds() {
    let (server, client) = started().await;
    running(&server, "True");
    budget(&server, "b", &json!({"disruptionsAllowed": 5}));
    let refused = evicted(&client, json!({})).await;
    assert_eq!((refused.code, refused.headers["retry-after"].to_str().unwrap()), (429, "10"));
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 10);
}

#[tokio::test]
async fn pods_that_disrupt_nobody_need_no_consent() {
    let (server, client) = started().await;
    let nothing_left = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2});
    budget(&server, "b", &nothing_left);
    for (phase, ready) in [("Pending", "False"), ("Failed", "False"), ("Running", "False")] {
        running(&server, ready);
        server.patch("pods/default/web", &json!({"status": {"phase": phase}})).unwrap();
        assert_eq!(evicted(&client, json!({})).await.code, 201, "{phase}");
        server.remove("pods/default/web");
    }
}

#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error_of_the_server() {
    let (server, client) = started().await;
    running(&server, "True");
    for name in ["a", "b"] {
        budget(&server, name, &json!({"observedGeneration": 1, "disruptionsAllowed": 1}));
    }
    assert_eq!(evicted(&client, json!({})).await.code, 500);
}

#[tokio::test]
async fn another_uid_a_missing_pod_and_a_dry_run_evict_nothing() {
    let (server, client) = started().await;
    assert_eq!(evicted(&client, json!({})).await.code, 404);
    running(&server, "True");
    let before = server.get("pods/default/web");
    assert_eq!(evicted(&client, json!({"preconditions": {"uid": "other"}})).await.code, 409);
    assert_eq!(evicted(&client, json!({"dryRun": ["All"]})).await.code, 201);
    assert_eq!(server.get("pods/default/web"), before);
}
