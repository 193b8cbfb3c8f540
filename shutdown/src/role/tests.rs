use k8s_openapi::api::core::v1 as api;
use serde_json::{Value, json};
use winddown_shared::Pod;

use super::Role;

/// Creates a pod from its metadata and spec.
fn pod(metadata: &Value, spec: &Value) -> Pod {
    let mut whole = json!({"metadata": metadata, "spec": {"containers": []}});
    whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut object: api::Pod = serde_json::from_value(whole).unwrap();
    object.metadata.name = Some("pod".to_owned());
    object.metadata.uid = Some("uid".to_owned());
    object.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    Pod::new(object).unwrap()
}

fn of_daemon_set() -> Value {
    json!({"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "u",
        "controller": true,
    }]})
}

fn in_control_plane(labels: &Value) -> Value {
    json!({
        "namespace": "kube-system",
        "labels": labels,
        "annotations": {"kubernetes.io/config.source": "file"},
    })
}

#[test]
fn each_pod_has_the_role_that_its_facts_give_it() {
    let from_file = json!({"annotations": {"kubernetes.io/config.source": "file"}});
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "hash"}});
    let from_api = json!({"annotations": {"kubernetes.io/config.source": "api"}});
    let table = [
        ("nothing said", json!({}), json!({}), Role::Ordinary),
        ("the highest user class", json!({}), json!({"priority": 1_000_000_000}), Role::Ordinary),
        ("from the API, unset", from_api, json!({}), Role::Ordinary),
        ("static with a priority", from_file.clone(), json!({"priority": 0}), Role::Ordinary),
        // Where containers are processes of the host, every pod is on its network.
        ("host network alone", json!({}), json!({"hostNetwork": true}), Role::Ordinary),
        (
            "class name alone",
            json!({}),
            json!({"priorityClassName": "system-node-critical"}),
            Role::Ordinary,
        ),
        ("cluster DNS", json!({}), json!({"priority": 2_000_000_000}), Role::System),
        ("just below node-critical", json!({}), json!({"priority": 2_000_000_999}), Role::System),
        ("a DaemonSet's", of_daemon_set(), json!({"priority": 0}), Role::System),
        (
            "critical on the host's network",
            json!({}),
            json!({"priority": 2_000_000_000, "hostNetwork": true}),
            Role::Node,
        ),
        (
            "a DaemonSet's on the host's network",
            of_daemon_set(),
            json!({"hostNetwork": true}),
            Role::Node,
        ),
        ("network plugin", of_daemon_set(), json!({"priority": 2_000_001_000}), Role::Node),
        ("static, unset", from_file, json!({}), Role::Node),
        ("mirror, unset", mirror, json!({}), Role::Node),
    ];
    for (name, metadata, spec, expected) in table {
        assert_eq!(Role::of(&pod(&metadata, &spec)), expected, "{name}");
    }
}

#[test]
fn the_control_plane_is_known_by_its_labels_and_etcd_is_apart() {
    let critical = json!({"priority": 2_000_001_000, "hostNetwork": true});
    let role = |labels| Role::of(&pod(&in_control_plane(&labels), &critical));
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        assert_eq!(role(json!({"component": component})), Role::ControlPlane, "{component}");
    }
    assert_eq!(role(json!({"tier": "control-plane"})), Role::ControlPlane);
    assert_eq!(role(json!({"tier": "control-plane", "component": "etcd"})), Role::Datastore);
    assert_eq!(role(json!({"component": "kube-proxy"})), Role::Node);
    // Whatever its priority, even without one.
    let unset = pod(&in_control_plane(&json!({"component": "etcd"})), &json!({}));
    assert_eq!(Role::of(&unset), Role::Datastore);
}

#[test]
fn a_label_alone_does_not_make_a_control_plane() {
    let labels = json!({"tier": "control-plane", "component": "etcd"});
    let elsewhere = json!({
        "namespace": "shop",
        "labels": labels,
        "annotations": {"kubernetes.io/config.source": "file"},
    });
    assert_eq!(Role::of(&pod(&elsewhere, &json!({"priority": 0}))), Role::Ordinary);
    let not_static = json!({"namespace": "kube-system", "labels": labels});
    assert_eq!(Role::of(&pod(&not_static, &json!({"priority": 0}))), Role::Ordinary);
}

#[test]
fn a_tenants_pod_is_no_part_of_the_control_plane_whatever_it_says_and_runs() {
    let critical = json!({
        "priority": 2_000_001_000, "hostNetwork": true,
        "containers": [{"name": "etcd", "image": "registry.example/etcd:3", "command": ["etcd"]}],
    });
    let ordinary = json!({"priority": 0, "containers": critical["containers"]});
    let label = |role: &str| json!({"winddown.dev/role": role, "component": "etcd", "tier": "control-plane"});
    for namespace in ["shop", "kube-shop", "openshift-shop"] {
        for labels in
            [json!({}), label("etcd"), label("control-plane"), json!({"component": "etcd"})]
        {
            let metadata = json!({"namespace": namespace, "labels": labels});
            assert_eq!(Role::of(&pod(&metadata, &ordinary)), Role::Ordinary, "{metadata}");
            assert_eq!(Role::of(&pod(&metadata, &critical)), Role::Node, "{metadata}");
        }
    }
    // Where only operators make pods, critical ones are believed, and others by our label only.
    let system = |labels| json!({"namespace": "kube-system", "labels": labels});
    assert_eq!(Role::of(&pod(&system(json!({})), &critical)), Role::Datastore);
    assert_eq!(Role::of(&pod(&system(json!({})), &ordinary)), Role::Ordinary);
    assert_eq!(Role::of(&pod(&system(label("control-plane")), &ordinary)), Role::ControlPlane);
    assert_eq!(Role::of(&pod(&system(label("none")), &critical)), Role::Node);
}

#[test]
fn of_a_pod_that_only_the_runtime_knows_namespace_and_name_say_what_it_is() {
    let of = |namespace: &str, name: &str| {
        let uid = winddown_shared::PodUid::new("uid");
        Role::of(&Pod::of_runtime(&winddown_shared::RuntimePod::new(uid, name, namespace, true)))
    };
    let table = [
        ("kube-system", "etcd-cp-1", Role::Datastore),
        ("openshift-etcd", "etcd-cp-1", Role::Datastore),
        ("kube-system", "etcd-manager-main-cp-1", Role::Datastore),
        ("kube-system", "kube-apiserver-cp-1", Role::ControlPlane),
        ("kube-system", "kube-proxy-cp-1", Role::Unknown),
        ("kube-system", "etcdctl", Role::Unknown),
        ("shop", "etcd-cp-1", Role::Unknown),
    ];
    for (namespace, name, role) in table {
        assert_eq!(of(namespace, name), role, "{namespace}/{name}");
    }
}

#[test]
fn a_daemon_set_that_only_owns_and_does_not_control_is_none() {
    let mut metadata = of_daemon_set();
    metadata["ownerReferences"][0]["controller"] = json!(false);
    assert_eq!(Role::of(&pod(&metadata, &json!({}))), Role::Ordinary);
}

#[test]
fn priorities_of_roles_ascend_as_the_roles_do() {
    assert!(Role::ALL.is_sorted());
    assert!(Role::ALL.windows(2).all(|pair| pair[0].priority() < pair[1].priority()));
}

#[test]
fn roles_are_shown_by_their_names() {
    let shown = Role::ALL.map(|role| role.to_string());
    let names =
        ["ordinary pods", "system pods", "pods of the node itself", "control plane", "etcd"];
    assert_eq!(shown, names);
}

fn with_directory(path: &str) -> Value {
    json!({"volumes": [
        {"name": "plain", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": path}},
    ]})
}

#[test]
fn drivers_are_known_by_where_they_register_or_by_their_label() {
    let labelled = |role: &str, mut metadata: Value| {
        metadata["labels"] = json!({"winddown.dev/role": role});
        metadata
    };
    let from_file = json!({"annotations": {"kubernetes.io/config.source": "file"}});
    let mut of_mayastor = of_daemon_set();
    of_mayastor["labels"] = json!({"app": "io-engine"});
    let registry = with_directory("/var/lib/kubelet/plugins_registry");
    let table = [
        ("a CSI or DRA driver", of_daemon_set(), registry.clone(), true),
        ("its socket", of_daemon_set(), with_directory("/var/lib/kubelet/plugins/csi.x/"), true),
        ("elsewhere", of_daemon_set(), with_directory("/var/lib/k0s/kubelet/plugins"), true),
        ("device plugin", of_daemon_set(), with_directory("/var/lib/kubelet/device-plugins"), true),
        ("network", of_daemon_set(), with_directory("/etc/cni/net.d"), true),
        ("its programs", of_daemon_set(), with_directory("//opt/cni/bin/"), true),
        ("k3s", of_daemon_set(), with_directory("/var/lib/rancher/k3s/agent/etc/cni/net.d"), true),
        ("from a file", from_file, registry.clone(), true),
        ("by its label", labelled("driver", json!({})), json!({}), true),
        (
            "the volumes of Longhorn",
            json!({"labels": {"longhorn.io/component": "instance-manager"}}),
            json!({}),
            true,
        ),
        (
            "the shared volumes of Longhorn",
            json!({"labels": {"longhorn.io/component": "share-manager"}}),
            json!({}),
            true,
        ),
        (
            "a volume of JuiceFS",
            json!({"labels": {"app.kubernetes.io/name": "juicefs-mount"}}),
            json!({}),
            true,
        ),
        (
            "a bucket of S3",
            json!({"labels": {"s3.csi.aws.com/mountpoint-version": "1.14.0"}}),
            json!({}),
            true,
        ),
        ("the disks of Ceph", json!({"labels": {"app": "rook-ceph-osd"}}), json!({}), true),
        ("Mayastor", of_mayastor, with_directory("/run/udev"), true),
        (
            "another part of it",
            json!({"labels": {"longhorn.io/component": "backing-image-manager"}}),
            json!({}),
            false,
        ),
        ("not by its label", labelled("other", of_daemon_set()), registry.clone(), false),
        ("a Job that looks", json!({}), registry, false),
        ("node exporter", of_daemon_set(), with_directory("/"), false),
        ("all of the kubelet", of_daemon_set(), with_directory("/var/lib/kubelet"), false),
        ("pods' logs", of_daemon_set(), with_directory("/var/lib/kubelet/pods"), false),
        ("the same names", of_daemon_set(), with_directory("/srv/kubelet/data/plugins"), false),
        ("nothing of the host", of_daemon_set(), json!({}), false),
    ];
    for (name, metadata, spec, expected) in table {
        let pod = pod(&metadata, &spec);
        assert_eq!(super::is_driver(&pod), expected, "{name}");
        if expected {
            assert_eq!(Role::of(&pod), Role::Node, "{name}");
        }
    }
}
