//! The manifests of `cluster/rbac` grant what is used, and nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

pub(crate) mod compare;
mod narrowed;
mod parts;

use std::collections::BTreeSet;

use serde_json::json;

use compare::{Difference, Right, compare, granted, kustomized, manifest};

#[test]
fn missing_and_unused_rights_are_both_found() {
    let objects = [
        json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "patch"]},
        ]}),
        json!({"kind": "Role", "metadata": {"name": "r", "namespace": "n"}, "rules": [
            {"apiGroups": ["g"], "resources": ["leases"], "verbs": ["get"]},
        ]}),
        json!({"kind": "ClusterRole", "metadata": {"name": "other"}, "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        ]}),
    ];
    let used = BTreeSet::from([
        Right::new("get", "", "pods", "anywhere"),
        Right::new("patch", "", "pods/status", "anywhere"),
        Right::new("get", "g", "leases", "n"),
        Right::new("get", "g", "leases", "elsewhere"),
        Right::new("get", "", "secrets", ""),
    ]);
    let wanted = Difference {
        missing: vec!["get leases.g in elsewhere".into(), "get secrets".into()],
        unused: vec!["get pods/status".into(), "patch pods".into()],
    };
    assert_eq!(compare(&granted(&objects, "r"), &used), wanted);
}

#[test]
fn every_manifest_is_read_and_every_role_grants_something() {
    for (file, role) in [
        ("cluster-mode", "winddown:cluster"),
        ("node-extra", "winddown:node-extra"),
        ("companion-mode", "winddown:companion"),
    ] {
        let rights = granted(&manifest(file), role);
        assert!(!rights.is_empty(), "{role}");
        assert!(rights.iter().all(|right| right.verb != "*" && right.resource != "*"), "{role}");
    }
    assert!(granted(&manifest("bootstrap"), "winddown:bootstrap").is_empty());
}

#[tokio::test]
async fn what_running_pods_needs_is_granted_and_nothing_else() {
    let (node, pods, references, mirrors, events, node_api) = tokio::join!(
        parts::node(),
        parts::pods(),
        parts::references(),
        parts::mirrors_and_leftovers(),
        parts::events(),
        parts::node_api(),
    );
    let used = [node, pods, references, mirrors, events, node_api].into_iter().flatten().collect();
    let granted = granted(&manifest("cluster-mode"), "winddown:cluster");
    assert_eq!(compare(&granted, &used), Difference::default());
}

#[tokio::test]
async fn a_node_that_is_registered_anew_tries_to_delete_its_lease_and_can_do_without() {
    let used = parts::node_anew().await;
    let granted = granted(&manifest("cluster-mode"), "winddown:cluster");
    let lacks = ["delete leases.coordination.k8s.io in kube-node-lease".to_owned()];
    assert_eq!(compare(&granted, &used).missing, lacks);
}

#[tokio::test]
async fn what_ending_a_kubelets_pods_needs_is_granted_and_nothing_else() {
    let (pods, node, events) =
        tokio::join!(parts::companion(), parts::node_of_a_kubelet(), parts::events());
    let used = [pods, node, events].into_iter().flatten().collect();
    let granted = granted(&manifest("companion-mode"), "winddown:companion");
    assert_eq!(compare(&granted, &used), Difference::default());
}

#[test]
fn one_kustomization_has_the_companion_and_the_rights_it_needs() {
    let objects = kustomized("programs/packaging/kubernetes");
    let kinds = objects.iter().map(|object| object["kind"].as_str().unwrap());
    let wanted = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ConfigMap",
        "DaemonSet",
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), wanted);
    assert_eq!(granted(&objects, "winddown:companion"), companions_needs());
}

/// What the agent asks the API server for beside a kubelet.
fn companions_needs() -> BTreeSet<Right> {
    let needs = winddown_companion::NEEDS;
    [winddown_companion::READ_BUDGETS]
        .iter()
        .chain(&winddown_companion::REQUEST_EVICTIONS)
        .chain(&needs)
        .map(|need| Right::new(need.verb, need.group, need.resource, ""))
        .collect()
}

#[test]
fn what_doctor_asks_about_is_what_the_manifest_grants() {
    assert_eq!(companions_needs(), granted(&manifest("companion-mode"), "winddown:companion"));
}
