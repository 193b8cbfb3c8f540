use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use winddown_apiserver::Fault;
use winddown_cluster::pods::PrepareError;

use crate::resolve::bed::{Bed, pod, pod_of_key};

#[tokio::test]
async fn an_api_server_that_is_away_is_said_to_be_and_nothing_is_taken_for_missing() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "1"}));
    bed.server.cut_off().await.unwrap();
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    let outcome = bed.prepare(&web).await;
    assert!(matches!(outcome, Err(PrepareError::Unavailable { after: None, .. })), "{outcome:?}");
    bed.server.come_back().await.unwrap();
    bed.prepare(&web).await.unwrap();
}

#[tokio::test]
async fn a_busy_api_server_says_when_to_come_again() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "1"}));
    bed.server.fault(Fault::on("get", "configmaps").status(429).retry_after(7));
    let outcome = bed.prepare(&pod_of_key("web", "configMapKeyRef", "m", false)).await;
    let Err(PrepareError::Unavailable { after, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(after, Some(Duration::from_secs(7)));
    let told = bed.told();
    assert_eq!(told[0].0, "FailedToReadMandatoryConfigMap");
}

#[tokio::test]
async fn a_request_that_hangs_is_given_up_and_pods_that_need_something_else_go_on() {
    let bed = Bed::new().await;
    bed.map("hangs", &json!({"k": "1"}));
    bed.map("m", &json!({"k": "1"}));
    bed.server.fault(Fault::on("get", "configmaps").name("hangs").hang());
    let (hung, fine) = (
        pod_of_key("hung", "configMapKeyRef", "hangs", false),
        pod_of_key("fine", "configMapKeyRef", "m", false),
    );
    let (outcome, other) =
        tokio::join!(async { (bed.prepare(&hung).await, Instant::now()) }, async {
            (bed.prepare(&fine).await, Instant::now())
        },);
    other.0.unwrap();
    assert!(other.1 < outcome.1, "it waits for nobody");
    let outcome = outcome.0;
    let Err(PrepareError::Unavailable { what, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(what.contains("no answer within 2s"), "{what}");
}

#[tokio::test]
async fn what_is_forbidden_is_said_in_the_servers_words() {
    let bed = Bed::new().await;
    bed.secret("s", &[("k", "1")]);
    bed.server.deny("get", "secrets");
    let outcome = bed.prepare(&pod_of_key("web", "secretKeyRef", "s", false)).await;
    let Err(PrepareError::Unavailable { what, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(what.contains("forbidden"), "{what}");
}

#[tokio::test]
async fn a_token_that_is_not_given_is_told_with_the_reason() {
    let bed = Bed::new().await;
    let volumes = json!([{"name": "access", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}}]}}]);
    let spec = json!({"serviceAccountName": "nobody", "volumes": volumes});
    let outcome = bed.prepare(&pod("web", &spec, &json!({}))).await;
    let Err(PrepareError::Unavailable { what, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(what.starts_with("failed to fetch token of service account \"nobody\": "), "{what}");
    let told = bed.told();
    assert!(told[0].1.starts_with("MountVolume.SetUp failed for volume \"access\" : failed to"));
}

#[tokio::test]
async fn pods_that_start_at_once_and_share_an_object_ask_for_it_less_often_than_they_are() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "1"}));
    bed.server.fault(Fault::on("get", "configmaps").delay(Duration::from_millis(100)));
    let pods: Vec<_> =
        (0..50).map(|i| pod_of_key(&format!("p{i}"), "configMapKeyRef", "m", false)).collect();
    let all = futures_util::future::join_all(pods.iter().map(|p| bed.prepare(p))).await;
    assert!(all.iter().all(Result::is_ok));
    assert!(bed.server.count("get", "configmaps") < 40);
    assert!(bed.server.count("list", "services") < 40);
}
