//! The manifests of `cluster/rbac` grant what is used, and nothing else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod compare;

use std::collections::BTreeSet;

use serde_json::json;

use compare::{Difference, Right, compare, granted, manifest};

#[test]
fn what_is_missing_and_what_nobody_uses_are_both_found() {
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
        ("cluster-mode", "winddown:node-extra"),
        ("companion-mode", "winddown:companion"),
    ] {
        let rights = granted(&manifest(file), role);
        assert!(!rights.is_empty(), "{role}");
        assert!(rights.iter().all(|right| right.verb != "*" && right.resource != "*"), "{role}");
    }
    assert!(granted(&manifest("bootstrap"), "winddown:bootstrap").is_empty());
}
