use std::time::Duration;

use serde_json::json;
use winddown_cluster::pods::{Prepare as _, PrepareError};

use crate::resolve::bed::{Bed, pod, pod_of_key, value};

fn is_missing<T>(outcome: &Result<T, PrepareError>) -> bool {
    matches!(outcome, Err(PrepareError::Missing { .. }))
}

#[tokio::test]
async fn a_config_map_that_comes_late_wakes_the_pod() {
    let bed = Bed::new().await;
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    assert!(is_missing(&bed.prepare(&web).await));
    bed.map("other", &json!({"k": "1"}));
    bed.map("m", &json!({"k": "late"}));
    assert_eq!(bed.arrived().await, "uid-web");
    let resolved = bed.prepare(&web).await.unwrap();
    assert_eq!(value(&resolved, "V").unwrap(), "late");
    let watching =
        bed.server.until("nobody watches", |o| (o.open_watches("configmaps") == 0).then_some(()));
    watching.await.unwrap();
    assert_eq!(bed.resolver.counts().watched, 0);
}

#[tokio::test]
async fn a_secret_that_lacks_a_key_wakes_the_pod_when_it_has_it() {
    let bed = Bed::new().await;
    bed.secret("s", &[("other", "1")]);
    let web = pod_of_key("web", "secretKeyRef", "s", false);
    assert!(is_missing(&bed.prepare(&web).await));
    let watched =
        bed.server.until("it is watched", |o| (o.open_watches("secrets") == 1).then_some(()));
    watched.await.unwrap();
    assert!(bed.nothing_arrived(), "the version that lacks it is no reason to wake");
    bed.secret("s", &[("k", "word")]);
    assert_eq!(bed.arrived().await, "uid-web");
    assert_eq!(value(&bed.prepare(&web).await.unwrap(), "V").unwrap(), "word");
}

#[tokio::test]
async fn an_object_of_a_volume_wakes_the_pod_too() {
    let bed = Bed::new().await;
    let volumes = json!([{"name": "config", "configMap": {"name": "m"}}]);
    let web = pod("web", &json!({"volumes": volumes}), &json!({}));
    assert!(is_missing(&bed.prepare(&web).await));
    let message = "MountVolume.SetUp failed for volume \"config\" : configmap \"m\" not found";
    assert_eq!(bed.told(), [("FailedMount".to_owned(), message.to_owned())]);
    assert!(bed.files("disk").is_empty());
    bed.map("m", &json!({"k": "late"}));
    assert_eq!(bed.arrived().await, "uid-web");
    bed.prepare(&web).await.unwrap();
    assert_eq!(bed.files("disk")["uid-web/config/k"], "late");
}

#[tokio::test]
async fn many_pods_that_wait_for_one_object_share_a_watch_and_all_are_woken() {
    let bed = Bed::new().await;
    let pods: Vec<_> =
        (0..50).map(|i| pod_of_key(&format!("p{i}"), "configMapKeyRef", "m", false)).collect();
    for one in &pods {
        assert!(is_missing(&bed.prepare(one).await));
    }
    assert_eq!(bed.resolver.counts().watched, 1);
    bed.map("m", &json!({"k": "late"}));
    let mut woken = Vec::new();
    for _ in &pods {
        woken.push(bed.arrived().await);
    }
    woken.sort();
    woken.dedup();
    assert_eq!(woken.len(), 50);
    assert!(bed.server.requests().iter().filter(|r| r.is("watch", "configmaps")).count() < 10);
}

#[tokio::test]
async fn a_pod_that_begins_to_wait_when_the_object_was_just_seen_is_woken_all_the_same() {
    let bed = Bed::new().await;
    let first = pod_of_key("first", "configMapKeyRef", "m", false);
    assert!(is_missing(&bed.prepare(&first).await));
    let stale = winddown_apiserver::Fault::on("get", "configmaps").times(1).status(404);
    bed.map("m", &json!({"k": "late"}));
    assert_eq!(bed.arrived().await, "uid-first");
    // The second pod was told that there is no such object, and the watch has seen it already.
    bed.server.fault(stale.reason("NotFound"));
    let second = pod_of_key("second", "configMapKeyRef", "m", false);
    assert!(is_missing(&bed.prepare(&second).await));
    assert_eq!(bed.arrived().await, "uid-second");
    bed.prepare(&second).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_goes_waits_no_longer() {
    let bed = Bed::new().await;
    let web = pod_of_key("web", "secretKeyRef", "s", false);
    assert!(is_missing(&bed.prepare(&web).await));
    bed.resolver.forget(web.uid()).await;
    assert_eq!(bed.resolver.counts().watched, 0);
    let unwatched =
        bed.server.until("nobody watches", |o| (o.open_watches("secrets") == 0).then_some(()));
    unwatched.await.unwrap();
    bed.secret("s", &[("k", "late")]);
    assert!(bed.nothing_arrived());
    assert_eq!(bed.resolver.counts(), winddown_pod_references::ResolveCounts::default());
}

#[tokio::test]
async fn an_outage_while_a_pod_waits_only_makes_it_wait_longer() {
    let bed = Bed::new().await;
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    assert!(is_missing(&bed.prepare(&web).await));
    let watched =
        bed.server.until("it is watched", |o| (o.open_watches("configmaps") == 1).then_some(()));
    watched.await.unwrap();
    bed.server.cut_off().await.unwrap();
    bed.map("m", &json!({"k": "meanwhile"}));
    let outcome = bed.prepare(&web).await;
    assert!(matches!(outcome, Err(PrepareError::Unavailable { .. })), "{outcome:?}");
    bed.server.come_back().await.unwrap();
    assert_eq!(bed.arrived().await, "uid-web");
    bed.prepare(&web).await.unwrap();
}

#[tokio::test]
async fn a_watch_that_is_told_gone_begins_anew() {
    let bed = Bed::new().await;
    let web = pod_of_key("web", "configMapKeyRef", "m", false);
    assert!(is_missing(&bed.prepare(&web).await));
    let watched =
        bed.server.until("it is watched", |o| (o.open_watches("configmaps") == 1).then_some(()));
    watched.await.unwrap();
    bed.server.compact();
    bed.server.fail_watches("configmaps", 410, "Expired");
    bed.map("m", &json!({"k": "late"}));
    assert_eq!(bed.arrived().await, "uid-web");
}

#[tokio::test]
async fn objects_are_watched_by_their_name_and_no_namespace_of_secrets_is_ever_listed() {
    let bed = Bed::new().await;
    let web = pod_of_key("web", "secretKeyRef", "s", false);
    assert!(is_missing(&bed.prepare(&web).await));
    bed.secret("s", &[("k", "late")]);
    bed.arrived().await;
    bed.prepare(&web).await.unwrap();
    tokio::time::sleep(Duration::ZERO).await;
    for request in bed.server.requests() {
        let of_secrets = request.right.resource == "secrets";
        let by_name =
            request.path.contains("metadata.name%3Ds") || request.path.contains("/secrets/s");
        assert!(!of_secrets || by_name, "{}", request.path);
    }
}
