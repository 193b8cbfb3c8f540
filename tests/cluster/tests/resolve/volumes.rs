use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_cluster::pods::{Prepare as _, PrepareError};
use winddown_shared::Pod;

use crate::resolve::bed::{Bed, LIMIT, pod};

fn with_volumes(name: &str, volumes: &Value) -> Pod {
    let mounts: Vec<Value> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|v| json!({"name": v["name"], "mountPath": format!("/v/{}", v["name"])}))
        .collect();
    pod(name, &json!({"volumes": volumes}), &json!({"volumeMounts": mounts}))
}

fn four() -> Value {
    json!([
        {"name": "config", "configMap": {"name": "m"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "facts", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
        ]}},
        {"name": "kube-api-access-x", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "m", "items": [{"key": "k", "path": "ca.crt"}]}},
        ]}},
        {"name": "scratch", "emptyDir": {}},
    ])
}

#[tokio::test]
async fn volumes_become_read_only_directories_of_the_host() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "map"}));
    bed.secret("s", &[("p", "word")]);
    let resolved = bed.prepare(&with_volumes("web", &four())).await.unwrap();
    let on_disk = bed.files("disk");
    assert_eq!(on_disk["uid-web/config/k"], "map");
    assert_eq!(on_disk["uid-web/facts/labels"], "app=\"web\"");
    assert_eq!(on_disk["uid-web/facts/cpu"], "4");
    assert_eq!(on_disk.len(), 3, "no secret is on a disk: {on_disk:?}");
    let in_memory = bed.files("memory");
    assert_eq!(in_memory["uid-web/secret/p"], "word");
    assert_eq!(in_memory["uid-web/kube-api-access-x/ca.crt"], "map");
    assert!(!in_memory["uid-web/kube-api-access-x/token"].is_empty());
    let spec = resolved.spec.as_ref().unwrap();
    for volume in spec.volumes.as_ref().unwrap().iter().filter(|v| v.name != "scratch") {
        let host = volume.host_path.as_ref().unwrap();
        assert!(host.path.ends_with(&format!("/uid-web/{}", volume.name)), "{}", host.path);
        assert_eq!(host.type_.as_deref(), Some("Directory"));
        assert!(volume.config_map.is_none() && volume.secret.is_none());
    }
    for mount in spec.containers[0].volume_mounts.as_ref().unwrap() {
        let expected = (mount.name != "scratch").then_some(true);
        assert_eq!(mount.read_only, expected, "{}", mount.name);
    }
    let mode = |path: &str| std::fs::metadata(bed.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("memory/uid-web/secret/p"), 0o400);
    assert_eq!((mode("memory"), mode("memory/uid-web")), (0o700, 0o700));
}

#[tokio::test]
async fn a_token_is_asked_for_its_pod() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "map"}));
    bed.secret("s", &[]);
    bed.prepare(&with_volumes("web", &four())).await.unwrap();
    let requests = bed.server.requests();
    let asked = requests.iter().find(|r| r.is("create", "serviceaccounts/token")).unwrap();
    assert_eq!(asked.right.name.as_str(), "default");
    assert_eq!(asked.body["spec"]["boundObjectRef"]["uid"], "uid-web");
    assert_eq!(asked.body["spec"]["boundObjectRef"]["kind"], "Pod");
    assert_eq!(asked.body["spec"]["expirationSeconds"], 3607);
    assert_eq!(asked.body["spec"]["audiences"], json!([]));
    bed.prepare(&with_volumes("web", &four())).await.unwrap();
    assert_eq!(bed.server.count("create", "serviceaccounts/token"), 1, "it is good for a while");
}

#[tokio::test]
async fn a_token_is_renewed_when_most_of_its_life_is_over() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "map"}));
    bed.secret("s", &[]);
    bed.prepare(&with_volumes("web", &four())).await.unwrap();
    let token = || bed.files("memory")["uid-web/kube-api-access-x/token"].clone();
    let first = token();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2900)).await;
    tokio::time::resume();
    bed.until("it is renewed", || token() != first).await;
    assert_eq!(bed.server.count("create", "serviceaccounts/token"), 2);
}

#[tokio::test]
async fn volumes_follow_their_objects_and_only_what_changed_is_written() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "old", "gone": "x"}));
    bed.map("still", &json!({"k": "same"}));
    let volumes = json!([
        {"name": "config", "configMap": {"name": "m"}},
        {"name": "still", "configMap": {"name": "still"}},
    ]);
    bed.prepare(&with_volumes("web", &volumes)).await.unwrap();
    let data =
        |volume: &str| std::fs::read_link(bed.path(&format!("disk/uid-web/{volume}/..data")));
    let before = (data("config").unwrap(), data("still").unwrap());
    bed.server.patch("configmaps/shop/m", &json!({"data": {"k": "new", "gone": null}})).unwrap();
    bed.until("it is written", || bed.files("disk")["uid-web/config/k"] == "new").await;
    bed.until("the rest is gone", || !bed.files("disk").contains_key("uid-web/config/gone")).await;
    assert_ne!(data("config").unwrap(), before.0);
    assert_eq!(data("still").unwrap(), before.1);
}

#[tokio::test]
async fn an_object_that_goes_leaves_the_volume_unless_it_is_optional() {
    let bed = Bed::new().await;
    bed.map("must", &json!({"k": "1"}));
    bed.map("may", &json!({"k": "1"}));
    let volumes = json!([
        {"name": "must", "configMap": {"name": "must"}},
        {"name": "may", "configMap": {"name": "may", "optional": true}},
    ]);
    bed.prepare(&with_volumes("web", &volumes)).await.unwrap();
    for name in ["must", "may"] {
        bed.server.remove(&format!("configmaps/shop/{name}"));
    }
    bed.until("the optional one is empty", || !bed.files("disk").contains_key("uid-web/may/k"))
        .await;
    assert_eq!(bed.files("disk")["uid-web/must/k"], "1");
}

#[tokio::test]
async fn an_outage_leaves_volumes_as_they_are_and_they_follow_again_after_it() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "old"}));
    let volumes = json!([{"name": "config", "configMap": {"name": "m", "optional": true}}]);
    bed.prepare(&with_volumes("web", &volumes)).await.unwrap();
    bed.server.cut_off().await.unwrap();
    bed.map("m", &json!({"k": "new"}));
    tokio::time::sleep(3 * crate::resolve::bed::AGE).await;
    assert_eq!(bed.files("disk")["uid-web/config/k"], "old", "unreadable is not missing");
    bed.server.come_back().await.unwrap();
    bed.until("it follows", || bed.files("disk")["uid-web/config/k"] == "new").await;
}

#[tokio::test]
async fn what_cannot_change_is_never_looked_at_again() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "1"}));
    bed.server.patch("configmaps/shop/m", &json!({"immutable": true})).unwrap();
    let volumes = json!([
        {"name": "config", "configMap": {"name": "m"}},
        {"name": "facts", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    bed.prepare(&with_volumes("web", &volumes)).await.unwrap();
    bed.prepare(&pod("bare", &json!({}), &json!({}))).await.unwrap();
    let counts = bed.resolver.counts();
    assert_eq!((counts.pods, counts.kept_fresh), (2, 0));
}

#[tokio::test]
async fn a_label_that_changes_is_shown_when_the_pod_is_seen_again() {
    let bed = Bed::new().await;
    let volumes = json!([{"name": "facts", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]);
    let web = with_volumes("web", &volumes);
    bed.prepare(&web).await.unwrap();
    let mut object = web.object().clone();
    object.metadata.labels = Some([("app".to_owned(), "other".to_owned())].into());
    bed.resolver.refresh(&Pod::new(object).unwrap());
    let shown = || bed.files("disk")["uid-web/facts/labels"].clone();
    bed.until("it is shown", || shown() == "app=\"other\"").await;
}

#[tokio::test]
async fn the_next_agent_keeps_the_volumes_of_running_pods_fresh() {
    let mut bed = Bed::new().await;
    bed.map("m", &json!({"k": "old"}));
    bed.secret("s", &[("p", "1")]);
    let web = with_volumes("web", &four());
    let handed_on = bed.prepare(&web).await.unwrap();
    bed.restart_agent();
    bed.map("m", &json!({"k": "new"}));
    // That one does not say what its volumes show.
    bed.resolver.adopt(&handed_on);
    bed.until("it follows", || bed.files("disk")["uid-web/config/k"] == "new").await;
    bed.resolver.refresh(&web);
    bed.map("m", &json!({"k": "again"}));
    bed.until("it goes on", || bed.files("disk")["uid-web/config/k"] == "again").await;
}

#[tokio::test]
async fn volumes_go_with_their_pod_and_those_of_unknown_pods_with_the_next_agent() {
    // The agent of before renews nothing meanwhile: it is of this process and would go on with what it began.
    let mut bed = Bed::with_max_age(LIMIT).await;
    bed.map("m", &json!({"k": "1"}));
    bed.secret("s", &[("p", "1")]);
    for name in ["web", "left", "runs"] {
        bed.prepare(&with_volumes(name, &four())).await.unwrap();
    }
    bed.resolver.forget(with_volumes("web", &four()).uid()).await;
    assert!(!bed.path("disk/uid-web").exists() && !bed.path("memory/uid-web").exists());
    bed.restart_agent();
    assert_eq!(bed.resolver.remove_unknown(|uid| uid == "uid-runs"), 2);
    assert!(!bed.path("disk/uid-left").exists() && !bed.path("memory/uid-left").exists());
    assert!(bed.path("disk/uid-runs/config/k").exists());
}

#[tokio::test]
async fn a_pod_that_goes_while_it_is_prepared_leaves_nothing() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "1"}));
    bed.secret("s", &[("p", "1")]);
    bed.server.fault(
        winddown_apiserver::Fault::on("get", "configmaps").delay(Duration::from_millis(200)),
    );
    let web = with_volumes("web", &four());
    let (_, ()) = tokio::join!(bed.prepare(&web), async {
        bed.until("it is asked", || bed.server.count("get", "configmaps") > 0).await;
        bed.resolver.forget(web.uid()).await;
    });
    assert!(!bed.path("disk/uid-web").exists() && !bed.path("memory/uid-web").exists());
    assert_eq!(bed.resolver.counts().pods, 0);
}

#[tokio::test]
async fn a_volume_that_cannot_be_shown_is_named() {
    let bed = Bed::new().await;
    let volumes = json!([{"name": "v", "projected": {"sources": [{}]}}]);
    let outcome = bed.prepare(&with_volumes("web", &volumes)).await;
    let Err(PrepareError::Invalid { field, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(field, "spec.volumes[0].projected.sources[0]");
    let mut object = with_volumes("web", &json!([])).object().clone();
    object.metadata.uid = Some("../../escape".to_owned());
    let volume = json!([{"name": "v", "downwardAPI": {"items": []}}]);
    object.spec.as_mut().unwrap().volumes = Some(serde_json::from_value(volume).unwrap());
    let outcome = bed.prepare(&Pod::new(object).unwrap()).await;
    let Err(PrepareError::Invalid { field, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(field, "metadata.uid");
}

#[tokio::test]
async fn an_object_of_a_megabyte_is_shown_like_any_other() {
    let bed = Bed::new().await;
    let big = "x".repeat(1_000_000);
    bed.map("m", &json!({"k": big}));
    let volumes = json!([{"name": "config", "configMap": {"name": "m"}}]);
    bed.prepare(&with_volumes("web", &volumes)).await.unwrap();
    assert_eq!(bed.files("disk")["uid-web/config/k"].len(), 1_000_000);
}

/// A pod's spec cannot be changed to refer to less.
#[tokio::test]
async fn a_pod_that_takes_too_much_starts_when_the_values_are_shortened_as_its_error_advises() {
    let bed = Bed::new().await;
    bed.map("m", &json!({"k": "x".repeat(1_000_000)}));
    let items: Vec<_> = (0..70).map(|n| json!({"key": "k", "path": format!("f{n}")})).collect();
    let volumes = json!([{"name": "config", "configMap": {"name": "m", "items": items}}]);
    let web = with_volumes("web", &volumes);
    let outcome = bed.prepare(&web).await;
    let Err(PrepareError::Unavailable { what, .. }) = outcome else { panic!("{outcome:?}") };
    let said = "spec.volumes[0]: the pod takes more than 64 MiB from the API: shorten the values";
    assert!(what.starts_with(said), "{what}");
    bed.map("m", &json!({"k": "short"}));
    bed.prepare(&web).await.unwrap();
}
