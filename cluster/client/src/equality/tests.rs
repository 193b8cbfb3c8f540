//! Tables of pairs of pods.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use winddown_shared::WallTime;

use super::{is_up_to_date, matters, resized, with_changes};

fn pod() -> api::Pod {
    let container = |name: &str| api::Container {
        name: name.into(),
        image: Some("image:1".into()),
        env: Some(vec![env("A", "1"), env("B", "2")]),
        resources: Some(amounts("100m", "1Gi")),
        ..api::Container::default()
    };
    api::Pod {
        metadata: ObjectMeta {
            name: Some("a".into()),
            namespace: Some("default".into()),
            uid: Some("u1".into()),
            labels: Some([("app".into(), "a".into())].into()),
            resource_version: Some("1".into()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![container("main"), container("side")],
            init_containers: Some(vec![container("init")]),
            tolerations: Some(vec![toleration("x", None), toleration("y", Some("Exists"))]),
            ..api::PodSpec::default()
        }),
        status: Some(api::PodStatus { phase: Some("Pending".into()), ..api::PodStatus::default() }),
    }
}

fn env(name: &str, value: &str) -> api::EnvVar {
    api::EnvVar { name: name.into(), value: Some(value.into()), value_from: None }
}

fn toleration(key: &str, operator: Option<&str>) -> api::Toleration {
    api::Toleration {
        key: Some(key.into()),
        operator: operator.map(Into::into),
        ..api::Toleration::default()
    }
}

fn amounts(cpu: &str, memory: &str) -> api::ResourceRequirements {
    let amount = |text: &str| Quantity(text.into());
    let requests = [("cpu".into(), amount(cpu)), ("memory".into(), amount(memory))];
    api::ResourceRequirements {
        requests: Some(requests.into()),
        ..api::ResourceRequirements::default()
    }
}

fn spec(pod: &mut api::Pod) -> &mut api::PodSpec {
    pod.spec.as_mut().unwrap()
}

type Row = (&'static str, fn(&mut api::Pod));

/// Its references are resolved when it is given to the node, and it cannot be changed.
#[test]
fn an_ephemeral_container_stays_as_it_was_resolved_when_anything_else_changes() {
    let debugger = |name: &str, variable: Option<&str>| api::EphemeralContainer {
        name: name.into(),
        env: variable.map(|value| vec![env("A", value)]),
        ..api::EphemeralContainer::default()
    };
    let (mut ours, mut other) = (pod(), pod());
    spec(&mut ours).ephemeral_containers = Some(vec![debugger("one", Some("resolved"))]);
    let list = vec![debugger("one", None), debugger("two", Some("new"))];
    spec(&mut other).ephemeral_containers = Some(list);
    other.metadata.labels = None;
    let taken = with_changes(&ours, &other);
    let list = vec![debugger("one", Some("resolved")), debugger("two", Some("new"))];
    assert_eq!(taken.spec.as_ref().unwrap().ephemeral_containers, Some(list));
    assert!(is_up_to_date(&taken, &other));
}

#[test]
fn t10_t12_t23_t31_t32_what_makes_no_difference() {
    let rows: &[Row] = &[
        ("T10: a copy", |_| ()),
        ("T12, T32: the phase", |p| p.status.as_mut().unwrap().phase = Some("Running".into())),
        ("T31: the resource version", |p| p.metadata.resource_version = Some("9".into())),
        ("T23: the order of resolved variables", |p| {
            spec(p).containers[0].env.as_mut().unwrap().reverse();
        }),
        ("variables that were resolved", |p| spec(p).containers[0].env = None),
        ("volumes that were resolved", |p| {
            spec(p).volumes =
                Some(vec![api::Volume { name: "v".into(), ..api::Volume::default() }]);
        }),
        ("no annotations and none", |p| p.metadata.annotations = Some([].into())),
        ("no finalizers and none", |p| p.metadata.finalizers = Some(vec![])),
        ("an empty list of ephemeral containers", |p| spec(p).ephemeral_containers = Some(vec![])),
        ("the order of tolerations", |p| spec(p).tolerations.as_mut().unwrap().reverse()),
        ("an operator that is the default", |p| {
            spec(p).tolerations.as_mut().unwrap()[0].operator = Some("Equal".into());
        }),
        ("another word for a quantity", |p| {
            spec(p).containers[0].resources = Some(amounts("0.1", "1024Mi"));
        }),
        ("no limits and none", |p| {
            spec(p).containers[0].resources.as_mut().unwrap().limits = Some([].into());
        }),
    ];
    for (what, edit) in rows {
        let mut other = pod();
        edit(&mut other);
        assert!(is_up_to_date(&pod(), &other), "{what}");
        assert!(is_up_to_date(&other, &pod()), "{what}, the other way");
        assert!(!matters(&pod(), &other), "T16: {what}");
    }
}

#[test]
fn t11_t14_t15_t33_what_makes_a_difference() {
    let rows: &[Row] = &[
        ("T11: an image", |p| spec(p).containers[1].image = Some("image:2".into())),
        ("an init container's image", |p| {
            spec(p).init_containers.as_mut().unwrap()[0].image = Some("image:2".into());
        }),
        ("T14, T33: a label", |p| {
            p.metadata.labels.as_mut().unwrap().insert("b".into(), "c".into());
        }),
        ("a label less", |p| p.metadata.labels = None),
        ("T15: an annotation", |p| {
            p.metadata.annotations = Some([("a".into(), "b".into())].into());
        }),
        ("T8: a deadline", |p| spec(p).active_deadline_seconds = Some(5)),
        ("the own grace", |p| spec(p).termination_grace_period_seconds = Some(1)),
        ("another toleration", |p| {
            spec(p).tolerations.as_mut().unwrap().push(toleration("z", None));
        }),
        ("one toleration twice instead of two", |p| {
            let tolerations = spec(p).tolerations.as_mut().unwrap();
            tolerations[1] = tolerations[0].clone();
        }),
        ("a resource", |p| spec(p).containers[0].resources = Some(amounts("200m", "1Gi"))),
        ("a limit", |p| {
            let limits = [("cpu".to_owned(), Quantity("1".into()))];
            spec(p).containers[0].resources.as_mut().unwrap().limits = Some(limits.into());
        }),
        ("resources of the pod", |p| spec(p).resources = Some(amounts("1", "1Gi"))),
        ("an ephemeral container", |p| {
            let container =
                api::EphemeralContainer { name: "e".into(), ..api::EphemeralContainer::default() };
            spec(p).ephemeral_containers = Some(vec![container]);
        }),
    ];
    for (what, edit) in rows {
        let mut other = pod();
        edit(&mut other);
        assert!(!is_up_to_date(&pod(), &other), "{what}");
        assert!(!is_up_to_date(&other, &pod()), "{what}, the other way");
        assert!(matters(&pod(), &other), "{what}");
        // Once it is applied there is no difference, and nothing else was touched.
        let mut ours = pod();
        spec(&mut ours).containers[0].env = Some(vec![env("RESOLVED", "1")]);
        let taken = with_changes(&ours, &other);
        let resized = resized(&taken, &other);
        assert_eq!(resized.is_some(), what.contains("resource") || *what == "a limit", "{what}");
        let taken = resized.unwrap_or(taken);
        assert!(is_up_to_date(&taken, &other), "{what}, taken over");
        let env = taken.spec.unwrap().containers[0].env.clone().unwrap();
        assert_eq!(env[0].name, "RESOLVED", "{what}");
    }
}

#[test]
fn t13_t17_t18_deletion_and_a_new_uid_matter_though_the_node_needs_no_update() {
    let when = |second| Some(Time(WallTime::from_second(second).unwrap()));
    let mut deleting = pod();
    deleting.metadata.deletion_timestamp = when(10);
    deleting.metadata.deletion_grace_period_seconds = Some(5);
    let mut longer = deleting.clone();
    longer.metadata.deletion_grace_period_seconds = Some(10);
    longer.metadata.deletion_timestamp = when(15);
    let mut granted = pod();
    granted.metadata.deletion_grace_period_seconds = Some(30);
    let mut anew = pod();
    anew.metadata.uid = Some("u2".into());
    for (what, old, new) in [
        ("T13: a time", pod(), deleting.clone()),
        ("T17: another grace", deleting, longer),
        ("T18: a grace", pod(), granted),
        ("another UID", pod(), anew),
    ] {
        assert!(matters(&old, &new), "{what}");
        assert!(is_up_to_date(&old, &new), "{what}");
    }
}
