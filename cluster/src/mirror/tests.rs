//! What to do about mirrors.
#![allow(clippy::needless_pass_by_value, reason = "JSON reads better where it is used")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;
use winddown_shared::status::PodPhase;
use winddown_shared::testing::pod;
use winddown_shared::{CONFIG_SPEC_ANNOTATION, DesiredPods, Pod, PodUid, WallClock, WallTime};

use super::{MirrorAction, Mirrors, ObservedMirror, api_reference, mirror_of, plan};
use crate::pods::MirrorSide;
use crate::status::{Outbox, OutboxConfig};

fn static_pod(uid: &str, name: &str) -> Pod {
    with_spec(uid, name, json!({ "containers": [{ "name": "main" }] }))
}

fn with_spec(uid: &str, name: &str, spec: Value) -> Pod {
    let object = json!({
        "metadata": {
            "name": name, "namespace": "kube-system", "uid": uid,
            "annotations": {
                "kubernetes.io/config.source": "file",
                "kubernetes.io/config.hash": uid,
            },
        },
        "spec": spec,
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

/// The mirror of `pod` as the API has it, with a UID of its own.
fn in_api(pod: &Pod, uid: &str, change: impl FnOnce(&mut api::Pod)) -> Pod {
    let mut object = mirror_of(pod, "node-1", "node-uid", WallTime::UNIX_EPOCH);
    object.metadata.uid = Some(uid.to_owned());
    change(&mut object);
    Pod::new(object).unwrap()
}

fn seen(pod: &Pod, uid: &str) -> ObservedMirror {
    ObservedMirror::new(&in_api(pod, uid, |_| {})).unwrap()
}

/// The steps in words.
fn steps(statics: &[Pod], seen: &[ObservedMirror]) -> Vec<String> {
    told(plan(statics, seen, &HashSet::new(), true, |_| false))
}

fn told(steps: Vec<MirrorAction>) -> Vec<String> {
    let mut told: Vec<String> = steps
        .into_iter()
        .map(|step| match step {
            MirrorAction::Create(pod) => format!("create {}", pod.uid()),
            MirrorAction::Delete(pod) => format!("delete {}", pod.uid),
            MirrorAction::Refuse { field, .. } => format!("refuse {field}"),
        })
        .collect();
    told.sort();
    told
}

#[test]
fn a_mirror_is_what_the_kubelet_makes() {
    let mirror =
        mirror_of(&static_pod("h1", "web-node-1"), "node-1", "node-uid", WallTime::UNIX_EPOCH);
    let meta = &mirror.metadata;
    let annotations = meta.annotations.as_ref().unwrap();
    assert_eq!(annotations["kubernetes.io/config.mirror"], "h1");
    assert_eq!(annotations["kubernetes.io/config.hash"], "h1");
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.seen"], "1970-01-01T00:00:00Z");
    let owner = &meta.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "node-uid"));
    assert_eq!(owner.controller, Some(true));
    assert_eq!((meta.uid.as_ref(), mirror.status.as_ref()), (None, None));
    let spec = mirror.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("node-1"));
    let toleration = &spec.tolerations.unwrap()[0];
    assert_eq!(toleration.effect.as_deref(), Some("NoExecute"));
    assert_eq!(toleration.operator.as_deref(), Some("Exists"));
}

#[test]
fn every_static_pod_gets_one_mirror_and_no_more() {
    let (a, b) = (static_pod("h1", "a"), static_pod("h2", "b"));
    assert_eq!(steps(&[a.clone(), b.clone()], &[]), ["create h1", "create h2"]);
    assert_eq!(steps(&[a.clone(), b.clone()], &[seen(&a, "u1")]), ["create h2"]);
    assert_eq!(steps(&[a.clone(), b.clone()], &[seen(&a, "u1"), seen(&b, "u2")]), [""; 0]);
}

#[test]
fn a_changed_manifest_has_its_mirror_made_anew() {
    let (old, new) = (static_pod("h1", "a"), static_pod("h2", "a"));
    // Not before the name is free.
    assert_eq!(steps(std::slice::from_ref(&new), &[seen(&old, "u1")]), ["delete u1"]);
    assert_eq!(steps(&[new], &[]), ["create h2"]);
}

/// The UID, from which the hash is derived otherwise, is the manifest's own and stays.
#[test]
fn a_changed_manifest_that_keeps_its_uid_has_its_mirror_made_anew() {
    let of = |mark: &str| {
        let mut object = static_pod("own", "a").object().clone();
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SPEC_ANNOTATION.to_owned(), mark.to_owned());
        Pod::new(object).unwrap()
    };
    assert_eq!(steps(&[of("new")], &[seen(&of("old"), "u1")]), ["delete u1"]);
    assert_eq!(steps(&[of("new")], &[seen(&of("new"), "u1")]), [""; 0]);
}

#[test]
fn a_mirror_that_is_deleted_is_let_go_and_made_anew() {
    let a = static_pod("h1", "a");
    let deleting = ObservedMirror { deleting: true, ..seen(&a, "u1") };
    assert_eq!(steps(std::slice::from_ref(&a), &[deleting]), ["delete u1"]);
    assert_eq!(steps(&[a], &[]), ["create h1"]);
}

#[test]
fn a_mirror_goes_with_its_static_pod_and_not_before() {
    let a = static_pod("h1", "a");
    let mirror = [seen(&a, "u1")];
    assert_eq!(steps(&[], &mirror), ["delete u1"]);
    assert_eq!(
        told(plan(&[], &mirror, &HashSet::new(), true, |_| true)),
        [""; 0],
        "it is still terminating"
    );
    assert_eq!(
        told(plan(&[], &mirror, &HashSet::new(), false, |_| false)),
        [""; 0],
        "not all manifests could be read"
    );
}

#[test]
fn of_two_static_pods_of_one_name_one_is_shown() {
    let twins = [static_pod("h1", "a"), static_pod("h2", "a")];
    assert_eq!(steps(&twins, &[]), ["create h1"]);
    assert_eq!(steps(&twins, &[seen(&twins[1], "u1")]), [""; 0]);
}

#[test]
fn a_pod_that_refers_to_the_api_has_no_mirror() {
    let cases = [
        (json!({ "serviceAccountName": "sa" }), "spec.serviceAccountName"),
        (json!({ "imagePullSecrets": [{ "name": "s" }] }), "spec.imagePullSecrets"),
        (
            json!({ "containers": [{ "name": "a" }, { "name": "b", "envFrom": [
                { "configMapRef": { "name": "c" } }] }] }),
            "spec.containers[1].envFrom[0]",
        ),
        (
            json!({ "initContainers": [{ "name": "i", "env": [{ "name": "X", "valueFrom":
                { "secretKeyRef": { "name": "s", "key": "k" } } }] }], "containers": [] }),
            "spec.initContainers[0].env[0].valueFrom",
        ),
        (
            json!({ "containers": [], "volumes": [{ "name": "v", "secret": { "secretName": "s" } }] }),
            "spec.volumes[0].secret",
        ),
        (
            json!({ "containers": [], "volumes": [{ "name": "e", "emptyDir": {} },
                { "name": "v", "projected": { "sources": [
                    { "serviceAccountToken": { "path": "t" } }] } }] }),
            "spec.volumes[1].projected",
        ),
    ];
    for (spec, field) in cases {
        let pod = with_spec("h1", "a", spec);
        assert_eq!(api_reference(&pod).as_deref(), Some(field));
        assert_eq!(steps(&[pod], &[]), [format!("refuse {field}")]);
    }
    let harmless = json!({ "containers": [{ "name": "a", "env": [{ "name": "X", "valueFrom":
        { "fieldRef": { "fieldPath": "metadata.name" } } }] }],
        "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] });
    assert_eq!(api_reference(&with_spec("h1", "a", harmless)), None);
}

fn mirrors() -> Mirrors {
    let (outbox, _driver) = Outbox::new(&OutboxConfig::default());
    Mirrors::new("node-1", outbox, WallClock::fixed(WallTime::UNIX_EPOCH)).0
}

#[test]
fn a_static_pod_is_found_under_its_mirrors_name_until_that_is_gone() {
    let mirrors = mirrors();
    let a = static_pod("h1", "a");
    let changes = mirrors.changes();
    mirrors.api_saw(&in_api(&a, "u1", |_| {}));
    mirrors.api_saw(&in_api(&a, "u1", |_| {}));
    assert_eq!(*changes.borrow(), 1, "the same again is no other name");
    assert_eq!(mirrors.of(&a).unwrap().uid, PodUid::new("u1"));
    // Deleted and created again; the end of the first is reported late.
    mirrors.api_saw(&in_api(&a, "u2", |_| {}));
    mirrors.gone(&PodUid::new("u1"));
    assert_eq!(mirrors.of(&a).unwrap().uid, PodUid::new("u2"));
    assert_eq!(mirrors.count(), 1);
    mirrors.relisted(&[]);
    assert_eq!((mirrors.of(&a), mirrors.count()), (None, 0));
}

/// `kubectl debug --copy-to` copies all annotations, and who may create pods may write any.
#[test]
fn a_copy_of_a_mirror_is_no_mirror_and_takes_none_away() {
    let mirrors = mirrors();
    let (etcd, web) = (static_pod("h1", "etcd"), static_pod("h2", "web"));
    mirrors.api_saw(&in_api(&etcd, "u1", |_| {}));
    mirrors.api_saw(&in_api(&etcd, "u2", |copy| copy.metadata.name = Some("etcd-dbg".to_owned())));
    assert_eq!(mirrors.of(&etcd).unwrap().uid, PodUid::new("u1"));
    mirrors.gone(&PodUid::new("u2"));
    assert_eq!(mirrors.of(&etcd).unwrap().uid, PodUid::new("u1"));
    // One with the name of another static pod is in the way of that pod's mirror, and counts for none.
    let copy = in_api(&etcd, "u3", |copy| copy.metadata.name = Some("web".to_owned()));
    let all = [seen(&etcd, "u1"), ObservedMirror::new(&copy).unwrap()];
    assert_eq!(steps(&[etcd.clone(), web.clone()], &all), ["delete u3"]);
    assert_eq!(steps(&[etcd, web], &all[1..]), ["create h1", "delete u3"]);
}

/// Whatever has taken its name meanwhile stays.
#[tokio::test(start_paused = true)]
async fn a_mirror_is_deleted_by_its_uid_and_not_by_its_name() {
    let (server, a) = (ApiServer::in_memory().unwrap(), static_pod("h1", "a"));
    let mut other = serde_json::to_value(in_api(&a, "u2", |_| {}).object()).unwrap();
    (other["apiVersion"], other["kind"]) = (json!("v1"), json!("Pod"));
    server.apply(other).unwrap();
    let (outbox, _driver) = Outbox::new(&OutboxConfig::default());
    let (mirrors, driver) = Mirrors::new("node-1", outbox, WallClock::fixed(WallTime::UNIX_EPOCH));
    mirrors.api_saw(&in_api(&a, "u1", |_| {}));
    mirrors.relisted(&[PodUid::new("u1")]);
    let none = Arc::new(DesiredPods { complete: true, ..DesiredPods::default() });
    let desired = watch::Sender::new(Some(none));
    let client = kube::Client::new(server.service(), "default");
    let minute = Duration::from_secs(60);
    let _ =
        timeout(minute, driver.run(client, desired.subscribe(), CancellationToken::new())).await;
    assert_eq!((server.count("delete", "pods"), mirrors.count()), (1, 0));
    assert_eq!(server.get("pods/kube-system/a").unwrap()["metadata"]["uid"], "u2");
}

/// Two lists run concurrently with the creation of mirrors.
#[test]
fn a_mirror_that_an_older_list_lacks_is_seen_again() {
    let mirrors = mirrors();
    let a = static_pod("h1", "a");
    mirrors.api_saw(&in_api(&a, "u1", |_| {}));
    mirrors.relisted(&[]);
    mirrors.api_saw(&in_api(&a, "u1", |_| {}));
    assert_eq!(mirrors.of(&a).unwrap().uid, PodUid::new("u1"));
}

#[test]
fn only_mirrors_count_as_mirrors() {
    let mirrors = mirrors();
    mirrors.api_saw(&pod("ordinary"));
    let mut annotated = pod("annotated").object().clone();
    annotated.metadata.annotations = Some([("team".to_owned(), "web".to_owned())].into());
    mirrors.api_saw(&Pod::new(annotated).unwrap());
    assert_eq!(mirrors.count(), 0);
}

#[test]
fn a_mirror_that_has_ended_is_made_anew_when_its_pod_lives_again() {
    let mirrors = mirrors();
    let a = static_pod("h1", "a");
    let ended = |object: &mut api::Pod| {
        object.status =
            Some(api::PodStatus { phase: Some("Failed".into()), ..api::PodStatus::default() });
    };
    mirrors.api_saw(&in_api(&a, "u1", ended));
    let plan = || {
        let known = mirrors.0.known.lock();
        let statics = std::slice::from_ref(&a);
        told(plan(statics, known.seen.values(), &known.living, true, |_| false))
    };
    mirrors.says(&a, PodPhase::Failed);
    assert_eq!(plan(), [""; 0]);
    mirrors.says(&a, PodPhase::Running);
    assert_eq!(plan(), ["delete u1"]);
    // It is seen once more before it is deleted.
    mirrors.api_saw(&in_api(&a, "u1", ended));
    assert_eq!(plan(), ["delete u1"]);
    mirrors.gone(&PodUid::new("u1"));
    mirrors.api_saw(&in_api(&a, "u2", |_| {}));
    assert_eq!(plan(), [""; 0]);
    // The watch is slower than the pod.
    mirrors.says(&a, PodPhase::Running);
    mirrors.api_saw(&in_api(&a, "u2", ended));
    assert_eq!(plan(), ["delete u2"]);
}

#[test]
fn an_answer_that_comes_late_neither_undoes_a_deletion_nor_brings_back_what_is_gone() {
    let mirrors = mirrors();
    let a = static_pod("h1", "a");
    let at = |version: &str, deleting: bool| {
        in_api(&a, "u1", |object| {
            object.metadata.resource_version = Some(version.to_owned());
            object.metadata.deletion_timestamp = deleting.then_some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(WallTime::UNIX_EPOCH),
            );
        })
    };
    mirrors.api_saw(&at("10", true));
    mirrors.api_saw(&at("9", false));
    assert!(mirrors.0.known.lock().seen.values().all(|seen| seen.deleting));
    mirrors.gone(&PodUid::new("u1"));
    mirrors.api_saw(&at("10", true));
    assert_eq!(mirrors.count(), 0);
    // The server's data is restored from a backup: one is to be made, and is there already.
    mirrors.relisted(&[PodUid::new("u1")]);
    mirrors.api_saw(&at("8", false));
    assert_eq!(mirrors.count(), 1);
}
