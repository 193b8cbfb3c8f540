//! The next step for a lease, and its valid times.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;

use super::super::lease::*;
use super::*;

const LASTS: Duration = Duration::from_secs(40);

fn owner(uid: &str) -> LeaseOwner {
    LeaseOwner { name: NAME.into(), uid: uid.into() }
}

fn lease(value: Value) -> Lease {
    serde_json::from_value(value).unwrap()
}

fn updated(step: LeaseStep) -> Lease {
    match step {
        LeaseStep::Update(lease) => lease,
        other => panic!("{other:?} is not an update"),
    }
}

#[test]
fn a_lease_that_is_not_there_is_made_with_its_node_as_the_owner() {
    let LeaseStep::Create(made) = next(None, &owner("u1"), second(0), None, LASTS) else {
        panic!("it is created");
    };
    let expected = lease(json!({
        "metadata": { "name": "n1", "namespace": "kube-node-lease", "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1" },
        ] },
        "spec": {
            "holderIdentity": "n1", "leaseDurationSeconds": 40,
            "renewTime": second(0).to_string(),
        },
    }));
    assert_eq!(made, expected);
}

#[test]
fn a_renewal_keeps_what_others_wrote_and_takes_the_lease_back_from_another_holder() {
    let known = lease(json!({
        "metadata": { "name": "n1", "resourceVersion": "7", "labels": { "a": "b" } },
        "spec": { "holderIdentity": "somebody", "renewTime": second(-5).to_string() },
    }));
    let renewed = updated(next(Some(known), &owner("u1"), second(0), None, LASTS));
    assert_eq!(renewed.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(renewed.metadata.labels.as_ref().unwrap()["a"], "b");
    assert_eq!(renewed.metadata.owner_references.as_ref().unwrap()[0].uid, "u1");
    let spec = renewed.spec.as_ref().unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("n1"));
    assert_eq!(renewed_at(&renewed), Some(second(0)));
}

#[test]
fn the_time_of_a_renewal_grows_also_when_the_clock_was_set_back() {
    let known = json!({ "spec": { "renewTime": second(100).to_string() } });
    let a_little_later = |n| second(n).checked_add(Duration::from_micros(1)).unwrap();
    let at = |now, renewed| {
        let known = Some(lease(known.clone()));
        renewed_at(&updated(next(known, &owner("u1"), now, renewed, LASTS)))
    };
    assert_eq!(at(second(50), None), Some(a_little_later(100)));
    assert_eq!(at(second(50), Some(second(120))), Some(a_little_later(120)));
    assert_eq!(at(second(130), Some(second(120))), Some(second(130)));
}

#[test]
fn a_lease_of_an_earlier_node_of_this_name_is_replaced() {
    let known = |owners: Value| lease(json!({ "metadata": { "ownerReferences": owners } }));
    let node = |uid| json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid });
    let step = |known| next(Some(known), &owner("u2"), second(0), None, LASTS);
    let LeaseStep::Replace(inherited) = step(known(json!([node("u1")]))) else {
        panic!("it goes");
    };
    assert_eq!(inherited.metadata.owner_references.unwrap()[0].uid, "u2");
    assert!(matches!(step(known(json!([node("u2")]))), LeaseStep::Update(_)));
    let other = json!({ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "p" });
    let kept = updated(step(known(json!([other]))));
    assert_eq!(kept.metadata.owner_references.unwrap().len(), 2);
}

#[test]
fn times_of_a_lease_that_contradict_each_other_are_refused_by_name() {
    let seconds = Duration::from_secs;
    assert!(LeaseTimes::new(seconds(40), seconds(10)).is_ok());
    for (lasts, renew, text) in [
        (seconds(0), seconds(1), "a lease of 0ns is not possible: choose 1 s to 24 h"),
        (
            seconds(40),
            seconds(40),
            "a lease of 40s cannot be renewed every 40s: choose less than its duration",
        ),
        (
            seconds(40),
            seconds(0),
            "a lease of 40s cannot be renewed every 0ns: choose less than its duration",
        ),
    ] {
        assert_eq!(LeaseTimes::new(lasts, renew).unwrap_err().to_string(), text);
    }
}

/// virtual-kubelet: TestNotReadyError.
#[test]
fn a_lease_that_waits_for_readiness_says_so_by_its_type() {
    let error: Box<dyn std::error::Error> = Box::new(LeaseError::NotReady);
    let known = error.downcast_ref::<LeaseError>();
    assert!(matches!(known, Some(LeaseError::NotReady)));
    assert!(!matches!(LeaseError::NotRegistered, LeaseError::NotReady));
}
