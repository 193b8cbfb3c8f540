//! TestRejectPodAdmissionBasedOnOSSelector, …OnOSField and
//! TestPodAdmissionBasedOnSupplementalGroupsPolicy.
//!
//! TestDeclaredFeaturesAdmitHandler has no counterpart: the features that a pod needs are not
//! derived from a list of feature gates here. The runtime rejects a field that it does not support,
//! with the path of the field and the same reason, `PodFeatureUnsupported`.

use super::*;

fn os_labelled(os: &str) -> NodeView {
    node(&json!({"metadata": {"labels": {"kubernetes.io/os": os}}}))
}

fn reason(pod: &Pod, node: &NodeView) -> Option<String> {
    platform_fits(pod, node).err().map(|rejection| {
        assert!(!rejection.retryable);
        rejection.reason.to_string()
    })
}

fn pod_labelled(os: &str) -> Pod {
    let labels = json!({"kubernetes.io/os": os});
    from(&json!({"metadata": {"uid": "u", "labels": labels}, "spec": {"containers": []}}))
}

#[test]
fn the_os_label_of_a_pod_must_be_that_of_the_machine() {
    let bare = pod("u", &json!({"containers": []}));
    for (what, pod, node, refused) in [
        ("OS label match", pod_labelled("linux"), os_labelled("linux"), false),
        ("dummy label, the machine matches", pod_labelled("linux"), os_labelled("dummyOS"), false),
        ("dummy label on both", pod_labelled("dummyOS"), os_labelled("dummyOS"), true),
        ("dummy label, the node has the right one", pod_labelled("dummyOS"), machine1(), true),
        ("the node's label is corrected", pod_labelled("dummyOS"), os_labelled("dummyOS"), true),
        ("no label on the pod", bare, os_labelled("dummyOS"), false),
    ] {
        let expected = refused.then(|| "PodOSSelectorNodeLabelDoesNotMatch".to_owned());
        assert_eq!(reason(&pod, &node), expected, "{what}");
    }
}

#[test]
fn a_wrong_os_label_on_the_node_object_stays_as_it_is_and_is_not_believed() {
    let node = os_labelled("dummyOS");
    let linux = json!({"containers": [], "nodeSelector": {"kubernetes.io/os": "linux"}});
    assert_eq!(failures(&pod("u", &linux), &node, &[]), []);
    assert_eq!(node.labels["kubernetes.io/os"], "dummyOS");
    assert_eq!(node.label("kubernetes.io/os"), Some("linux"));
}

#[test]
fn the_os_field_of_a_pod_must_be_that_of_the_machine() {
    for (what, spec, refused) in [
        ("OS field match", json!({"containers": [], "os": {"name": "linux"}}), false),
        ("OS field mismatch", json!({"containers": [], "os": {"name": "dummyOS"}}), true),
        ("no OS field", json!({"containers": []}), false),
    ] {
        let expected = refused.then(|| "PodOSNotSupported".to_owned());
        assert_eq!(reason(&pod("u", &spec), &machine1()), expected, "{what}");
    }
}

// The kubelet's six further rows are about releases in which the feature was not on by default.
#[test]
fn a_strict_policy_for_groups_needs_a_runtime_that_has_it() {
    let with = node(&json!({"status": {"features": {"supplementalGroupsPolicy": true}}}));
    let policy = |name: &str| {
        let context = json!({"supplementalGroupsPolicy": name});
        pod("u", &json!({"containers": [], "securityContext": context}))
    };
    let unset = || pod("u", &json!({"containers": []}));
    for (what, pod, node, refused) in [
        ("not supported, in use", policy("Strict"), machine1(), true),
        ("supported, in use", policy("Strict"), with.clone(), false),
        ("not supported, not in use", unset(), machine1(), false),
        ("supported, not in use", unset(), with, false),
        ("not supported, merging", policy("Merge"), machine1(), false),
    ] {
        let expected = refused.then(|| "SupplementalGroupsPolicyNotSupported".to_owned());
        assert_eq!(reason(&pod, &node), expected, "{what}");
    }
}

#[test]
fn a_pod_that_is_to_be_confined_by_apparmor_needs_a_kernel_that_does_it() {
    let profile = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
    let container = |kind: &str| {
        let mut container = profile(kind);
        container["name"] = json!("c");
        json!([container])
    };
    let of_pod = |kind: &str, containers: serde_json::Value| {
        let mut spec = profile(kind);
        spec["containers"] = containers;
        spec
    };
    for (what, spec, refused) in [
        ("none", json!({"containers": []}), false),
        ("the pod, unconfined", of_pod("Unconfined", json!([])), false),
        ("a container, unconfined", json!({"containers": container("Unconfined")}), false),
        ("the pod", of_pod("RuntimeDefault", json!([])), true),
        ("the pod, and no container", of_pod("Localhost", container("Unconfined")), true),
        ("a container", json!({"containers": container("Localhost")}), true),
        ("a container alone", of_pod("Unconfined", container("RuntimeDefault")), true),
        (
            "an init container",
            json!({"containers": [], "initContainers": container("Localhost")}),
            true,
        ),
        (
            "an ephemeral container",
            json!({"containers": [], "ephemeralContainers": container("Localhost")}),
            true,
        ),
    ] {
        let pod = pod("u", &spec);
        let found = platform_fits(&pod, &machine1()).map_err(|refused| {
            (refused.reason.to_string(), refused.message.to_string(), refused.retryable)
        });
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        let expected = ("AppArmor".to_owned(), message.to_owned(), false);
        assert_eq!(found, if refused { Err(expected) } else { Ok(()) }, "{what}");
        let node = NodeView { app_armor: true, ..machine1() };
        assert_eq!(reason(&pod, &node), None, "{what}");
    }
}

#[test]
fn a_pod_sets_only_the_kernel_parameters_that_harm_no_other() {
    let asks = |name: &str, more: serde_json::Value| {
        let sysctls =
            json!([{"name": "net.ipv4.tcp_rmem", "value": "1"}, {"name": name, "value": "1"}]);
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = platform_fits(&pod("u", &spec), &machine1()).err();
        refused.map(|refused| (refused.reason.to_string(), refused.message.to_string()))
    };
    let forbidden =
        |why: &str| Some(("SysctlForbidden".to_owned(), format!("forbidden sysctl: {why}")));
    assert_eq!(asks("kernel.shm_rmid_forced", json!({})), None);
    assert_eq!(asks("net/ipv4/tcp_syncookies", json!({})), None);
    let refused = forbidden("\"kernel.msgmax\" not allowlisted");
    assert_eq!(asks("kernel.msgmax", json!({})), refused);
    let refused = forbidden("\"net.ipv4.conf.eth0/1.rp_filter\" not allowlisted");
    assert_eq!(asks("net/ipv4/conf/eth0.1/rp_filter", json!({})), refused);
    let refused = forbidden("\"kernel.shm_rmid_forced\" not allowed with host IPC enabled");
    assert_eq!(asks("kernel.shm_rmid_forced", json!({"hostIPC": true})), refused);
    let refused = forbidden("\"net.ipv4.tcp_rmem\" not allowed with host Net enabled");
    assert_eq!(asks("net.ipv4.tcp_wmem", json!({"hostNetwork": true})), refused);
}

#[test]
fn unsafe_kernel_parameters_are_set_where_the_node_allows_them_in_namespaces_of_the_pods_own() {
    let patterns = ["kernel.msg*", "net/core/somaxconn", "fs.mqueue.*", "net.ipv4.conf.*"];
    let unsafe_sysctls = patterns.map(str::to_owned).to_vec();
    let node = NodeView { unsafe_sysctls, ..machine1() };
    let asks = |name: &str, more: serde_json::Value| {
        let sysctls = json!([{"name": name, "value": "1"}]);
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        platform_fits(&pod("u", &spec), &node).err().map(|refused| refused.message.to_string())
    };
    for name in
        ["kernel.msgmax", "net.core.somaxconn", "fs/mqueue/msg_max", "net/ipv4/conf/eth0.1/x"]
    {
        assert_eq!(asks(name, json!({})), None, "{name}");
    }
    for (name, host, why) in [
        ("kernel.sem", "hostPID", "\"kernel.sem\" not allowlisted"),
        ("net.core.somaxconn1", "hostPID", "\"net.core.somaxconn1\" not allowlisted"),
        ("kernel.msgmax", "hostIPC", "\"kernel.msgmax\" not allowed with host IPC enabled"),
        ("fs.mqueue.msg_max", "hostIPC", "\"fs.mqueue.msg_max\" not allowed with host IPC enabled"),
        (
            "net.core.somaxconn",
            "hostNetwork",
            "\"net.core.somaxconn\" not allowed with host Net enabled",
        ),
    ] {
        let refused = Some(format!("forbidden sysctl: {why}"));
        assert_eq!(asks(name, json!({host: true})), refused);
    }
    for host in ["kernel.*", "kernel.shm_*", "vm.swappiness", "network.x", "*"] {
        assert_eq!(sysctl_namespace(host), None, "{host}");
    }
}
