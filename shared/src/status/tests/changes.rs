//! The changes since the last read.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::status::StatusStore;
use crate::{GateReason, Pod, WallTime};

fn pod(uid: &str) -> Pod {
    let metadata = ObjectMeta {
        name: Some(uid.into()),
        namespace: Some("default".into()),
        uid: Some(uid.into()),
        ..ObjectMeta::default()
    };
    Pod::new(api::Pod { metadata, ..api::Pod::default() }).unwrap()
}

fn status(message: &str) -> api::PodStatus {
    let ready = api::PodCondition {
        type_: "Ready".into(),
        status: "True".into(),
        ..api::PodCondition::default()
    };
    api::PodStatus {
        message: Some(message.into()),
        conditions: Some(vec![ready]),
        ..api::PodStatus::default()
    }
}

fn changed(store: &StatusStore, seen: &mut u64) -> Vec<String> {
    let (entries, now) = store.changed_since(*seen);
    *seen = now;
    entries.iter().map(|e| e.pod.uid().to_string()).collect()
}

#[test]
fn each_changed_pod_is_told_once_and_unchanged_ones_are_not() {
    let (store, mut seen) = (StatusStore::default(), 0);
    for uid in ["a", "b", "c"] {
        store.set(pod(uid), status("1"));
    }
    assert_eq!(changed(&store, &mut seen), ["a", "b", "c"]);
    assert_eq!(changed(&store, &mut seen), [""; 0]);
    store.set(pod("b"), status("2"));
    store.set(pod("a"), status("1"));
    store.set(pod("b"), status("3"));
    assert_eq!(changed(&store, &mut seen), ["b"], "latest wins, and the same again is no change");
    assert_eq!(store.get(pod("b").uid()).unwrap().message.as_deref(), Some("3"));
}

#[test]
fn a_status_that_is_true_of_a_newer_spec_too_is_a_change_and_the_pod_is_the_newest() {
    let (store, mut seen) = (StatusStore::default(), 0);
    let with = |generation, label: &str| {
        let mut pod = api::Pod::clone(&pod("a"));
        pod.metadata.generation = Some(generation);
        pod.metadata.labels = Some([("app".to_owned(), label.to_owned())].into());
        Pod::new(pod).unwrap()
    };
    store.set(with(1, "x"), status("1"));
    assert_eq!(changed(&store, &mut seen), ["a"]);
    store.set(with(2, "x"), status("1"));
    assert_eq!(changed(&store, &mut seen), ["a"]);
    store.set(with(2, "y"), status("1"));
    assert_eq!(changed(&store, &mut seen), [""; 0], "the status says nothing of labels");
    assert_eq!(store.all()[0].pod.metadata.labels.as_ref().unwrap()["app"], "y");
}

#[test]
fn forgotten_pods_leave_nothing_behind_and_a_lame_duck_changes_all() {
    let (store, mut seen) = (StatusStore::default(), 0);
    for uid in ["a", "b", "c"] {
        store.set(pod(uid), status("1"));
    }
    store.remove(pod("a").uid());
    store.retain(|uid| uid.as_str() != "b");
    assert_eq!(changed(&store, &mut seen), ["c"]);
    store.lame_duck(GateReason::Shutdown, true, WallTime::UNIX_EPOCH);
    assert_eq!(changed(&store, &mut seen), ["c"]);
    store.set(pod("a"), status("1"));
    assert_eq!(changed(&store, &mut seen), ["a"]);
}
