use k8s_openapi::api::core::v1 as api;
use winddown_shared::{ON_REBOOT_ANNOTATION, Pod, ShutdownKind};

use super::{InPlacePolicy, comes_back, may_stay, may_survive};

fn pod(change: impl FnOnce(&mut api::Pod)) -> Pod {
    let mut object = crate::tests::pod("db", None, Some(30)).object().clone();
    object.metadata.namespace = Some("databases".into());
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(ON_REBOOT_ANNOTATION.into(), "restart".into());
    change(&mut object);
    Pod::new(object).unwrap()
}

fn spec(pod: &mut api::Pod) -> &mut api::PodSpec {
    let spec = pod.spec.get_or_insert_default();
    if spec.containers.is_empty() {
        spec.containers.push(api::Container::default());
    }
    spec
}

#[test]
fn a_pod_stays_only_if_it_asks_and_the_node_lets_its_namespace() {
    let policy = InPlacePolicy::from([("databases".to_owned(), false)]);
    type Change = fn(&mut api::Pod);
    let rows: [(&str, Change, bool); 12] = [
        ("asks", |_| {}, true),
        ("does not ask", |pod| pod.metadata.annotations = None, false),
        (
            "another value",
            |pod| {
                let all = pod.metadata.annotations.as_mut().unwrap();
                all.insert(ON_REBOOT_ANNOTATION.into(), "true".into());
            },
            false,
        ),
        (
            "a label is no annotation",
            |pod| pod.metadata.labels = pod.metadata.annotations.take(),
            false,
        ),
        ("another namespace", |pod| pod.metadata.namespace = Some("default".into()), false),
        ("a longer namespace", |pod| pod.metadata.namespace = Some("databases2".into()), false),
        (
            "deleted",
            |pod| {
                let now = winddown_shared::WallTime::UNIX_EPOCH;
                let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
                pod.metadata.deletion_timestamp = Some(now);
            },
            false,
        ),
        ("Always", |pod| spec(pod).restart_policy = Some("Always".into()), true),
        ("OnFailure", |pod| spec(pod).restart_policy = Some("OnFailure".into()), false),
        ("Never", |pod| spec(pod).restart_policy = Some("Never".into()), false),
        (
            "a container that runs once",
            |pod| spec(pod).containers[0].restart_policy = Some("Never".into()),
            false,
        ),
        (
            "an unknown restart policy",
            |pod| spec(pod).restart_policy = Some("Sometimes".into()),
            false,
        ),
    ];
    for (row, change, expected) in rows {
        let pod = pod(change);
        assert_eq!(may_stay(&pod, &policy), expected, "{row}");
        assert!(!may_stay(&pod, &InPlacePolicy::new()), "{row}: no namespace by default");
    }
}

#[test]
fn a_pod_survives_only_if_it_asks_for_that_and_its_namespace_may() {
    let annotated = |value: &str| {
        pod(|pod| {
            let all = pod.metadata.annotations.as_mut().unwrap();
            all.insert(ON_REBOOT_ANNOTATION.into(), value.into());
        })
    };
    let policy = |may| InPlacePolicy::from([("databases".to_owned(), may)]);
    for (value, may, expected) in [
        ("survive", true, (true, true)),
        ("survive", false, (true, false)),
        ("restart", true, (true, false)),
        ("Survive", true, (false, false)),
    ] {
        let (pod, policy) = (annotated(value), policy(may));
        assert_eq!(
            (may_stay(&pod, &policy), may_survive(&pod, &policy)),
            expected,
            "{value} {may}"
        );
    }
    let mut once = annotated("survive").object().clone();
    spec(&mut once).restart_policy = Some("Never".into());
    assert!(!may_survive(&Pod::new(once).unwrap(), &policy(true)), "other reboots would fail it");
}

#[test]
fn a_node_comes_back_only_from_what_is_known_to_be_a_reboot() {
    use ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot, Unknown};
    for (kind, expected) in [
        (Unknown, false),
        (PowerOff, false),
        (Halt, false),
        (Reboot, true),
        (Kexec, true),
        (SoftReboot, true),
    ] {
        assert_eq!(comes_back(kind, false), expected, "{kind:?}");
        assert!(!comes_back(kind, true), "{kind:?}: a notice says that the node is lost");
    }
}
