use std::collections::BTreeMap;

use serde_json::{Value, json};
use winddown_shared::{PodUid, WallTime};

use super::*;

fn map(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// A pod with these labels and annotations, and two containers with these.
fn made(namespace: &str, labels: &Value, annotations: &Value, containers: &[Value; 2]) -> api::Pod {
    let container = |annotations: &Value| FoundContainer {
        name: "a".to_owned(),
        running_since: Some(WallTime::UNIX_EPOCH),
        annotations: map(annotations),
        ..FoundContainer::default()
    };
    let found = FoundPod {
        uid: PodUid::new("hash"),
        name: "etcd-n1".to_owned(),
        namespace: namespace.to_owned(),
        labels: map(labels),
        annotations: map(annotations),
        containers: containers.iter().map(container).collect(),
    };
    object(found, "n1")
}

/// What kubeadm's etcd has.
const SOURCE: &str = "kubernetes.io/config.source";

#[test]
fn the_pod_of_a_manifest_becomes_a_mirror_pod_of_itself_and_no_other_pod_does() {
    let labels = json!({"component": "etcd", "io.kubernetes.pod.name": "etcd-n1"});
    let of_file = json!({SOURCE: "file", "kubernetes.io/config.hash": "hash"});
    let etcd = made("kube-system", &labels, &of_file, &[json!({}), json!({})]);
    let pod = winddown_shared::Pod::new(crate::facts::planned(etcd)).unwrap();
    assert!(pod.is_mirror() && pod.is_static());
    assert_eq!(crate::facts::runtime_uid(&pod).as_str(), "hash");
    assert_eq!(pod.metadata.labels, Some(map(&json!({"component": "etcd"}))));
    assert!(pod.priority() >= Some(2_000_001_000), "it ends late");
    // The kubelet overwrites the source, and nothing else.
    let forged = json!({
        SOURCE: "api", "kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "x",
    });
    let tenant = made("tenant", &labels, &forged, &[json!({}), json!({})]);
    let pod = winddown_shared::Pod::new(crate::facts::planned(tenant)).unwrap();
    assert!(!pod.is_mirror() && !pod.is_static());
    assert_eq!(crate::facts::runtime_uid(&pod).as_str(), "hash");
    assert_eq!(pod.priority(), None);
}

#[test]
fn grace_hooks_controller_and_namespace_are_what_a_kubelet_records() {
    let hook = r#"{"exec":{"command":["/bin/sync"]}}"#;
    let containers = [json!({GRACE: "30"}), json!({GRACE: "45", PRE_STOP: hook})];
    let daemon = json!({"pod-template-generation": "1", "controller-revision-hash": "abc"});
    let pod = made("kube-system", &daemon, &json!({SOURCE: "api"}), &containers);
    assert!(crate::facts::has_pre_stop(&pod) && crate::facts::runs(&pod));
    let owner = &pod.metadata.owner_references.unwrap()[0];
    assert_eq!((&*owner.kind, owner.controller), ("DaemonSet", Some(true)));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.termination_grace_period_seconds, Some(45));
    assert_eq!(spec.priority, Some(SYSTEM_CRITICAL_PRIORITY));
    // What cannot be read is not known.
    let odd = json!({GRACE: "soon", PRE_STOP: "{"});
    let pod = made("default", &json!({}), &json!({}), &[odd.clone(), odd]);
    assert!(!crate::facts::has_pre_stop(&pod));
    let spec = pod.spec.unwrap();
    assert_eq!((spec.termination_grace_period_seconds, spec.priority), (None, None));
    assert_eq!(pod.metadata.owner_references, None);
}
