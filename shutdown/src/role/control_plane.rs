//! Which pods are parts of the control plane, by what they are. Pure.

use k8s_openapi::api::core::v1::Container;
use winddown_shared::{Pod, SYSTEM_CRITICAL_PRIORITY};

use super::{ROLE_LABEL, Role, is_static, programs::programs};

/// The namespace that no tenant may write to.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// How the names of the other namespaces begin in which distributions keep their control plane.
const SYSTEM_PREFIXES: [&str; 2] = ["kube-", "openshift-"];

/// The keys of the labels by which distributions name a part: kubeadm, RKE2; kops, Talos, Typhoon; OpenShift; charts.
const LABELS: [&str; 4] = ["component", "k8s-app", "app", "app.kubernetes.io/name"];

/// The parts by their names: that of the program, the image, the container or the label's value.
const PARTS: [(&str, Role); 14] = [
    ("etcd", Role::Datastore),
    ("etcd-manager", Role::Datastore),
    ("etcd-manager-slim", Role::Datastore),
    ("kine", Role::Datastore),
    ("kube-apiserver", Role::ControlPlane),
    ("kube-controller-manager", Role::ControlPlane),
    ("kube-scheduler", Role::ControlPlane),
    ("cloud-controller-manager", Role::ControlPlane),
    // What clients, or the API server itself, reach the other side through.
    ("konnectivity-server", Role::ControlPlane),
    ("proxy-server", Role::ControlPlane),
    ("kube-vip", Role::ControlPlane),
    ("kube-nginx", Role::ControlPlane),
    ("kube-haproxy", Role::ControlPlane),
    // RKE2 labels it as if it were one.
    ("kube-proxy", Role::Node),
];

/// The beginnings of names that are followed by an instance: etcd-manager-main, etcd-server-events.
const INSTANCES: [&str; 2] = ["etcd-manager-", "etcd-server"];

/// Returns `ControlPlane` or `Datastore` if `pod` has that role; `base` is the role that it would have otherwise.
pub(super) fn part(pod: &Pod, base: Role) -> Option<Role> {
    if !is_of_operators(pod) {
        return None;
    }
    match label(pod, ROLE_LABEL) {
        Some("etcd") => Some(Role::Datastore),
        Some("control-plane") => Some(Role::ControlPlane),
        Some(_) => None,
        None => may_be_part(pod, base).then(|| of_names(pod))?,
    }
}

/// Whether only those who administer the node or the cluster can have made the pod: it comes from a manifest of this
/// node, or is in `kube-system`. What a pod of a tenant says of itself moves it nowhere.
fn is_of_operators(pod: &Pod) -> bool {
    is_static(pod)
        || &**pod.namespace() == SYSTEM_NAMESPACE
        || (pod.is_runtime_only() && is_of_system(pod))
}

/// Whether the pod is of the kind that parts of a control plane are. A static pod that serves an application, by its
/// namespace and its priority, is none, whatever it runs.
fn may_be_part(pod: &Pod, base: Role) -> bool {
    if pod.is_runtime_only() {
        return is_of_system(pod);
    }
    let is_critical = pod.priority().is_none_or(|priority| priority >= SYSTEM_CRITICAL_PRIORITY);
    match is_static(pod) {
        true => is_of_system(pod) || is_critical,
        false => matches!(base, Role::System | Role::Node),
    }
}

fn is_of_system(pod: &Pod) -> bool {
    SYSTEM_PREFIXES.iter().any(|prefix| pod.namespace().starts_with(prefix))
}

/// The part that the pod's labels, programs, images and names say it is.
fn of_names(pod: &Pod) -> Option<Role> {
    let containers = pod.spec.as_ref().map(|spec| &*spec.containers).unwrap_or_default();
    let labels = LABELS.iter().filter_map(|key| label(pod, key));
    let said = labels.filter_map(|name| of_name(name.strip_prefix("openshift-").unwrap_or(name)));
    let found = said.chain(containers.iter().filter_map(of_container)).max();
    let found = found
        .or_else(|| of_pod_name(pod))
        .or_else(|| (label(pod, "tier") == Some("control-plane")).then_some(Role::ControlPlane));
    found.filter(|role| *role > Role::Node)
}

fn of_container(container: &Container) -> Option<Role> {
    let words = container.command.iter().chain(&container.args).flatten().map(String::as_str);
    // Arguments alone are those of the image's own program.
    let words = words.filter(|_| container.command.is_some());
    let image = container.image.as_deref().map(image_name);
    let names = programs(words).into_iter().chain([container.name.clone()]).chain(image);
    names.filter_map(|name| of_name(&name)).max()
}

/// The name of the pod, which ends in that of its node: for pods of which only the runtime knows, and for images and
/// programs of one's own.
fn of_pod_name(pod: &Pod) -> Option<Role> {
    let name = &**pod.name();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let own =
        node.and_then(|node| name.strip_suffix(&node.to_ascii_lowercase())?.strip_suffix('-'));
    match own {
        Some(own) => of_name(own),
        None if pod.is_runtime_only() => {
            let is_named =
                |part: &str| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('-'));
            PARTS.iter().filter(|(part, _)| is_named(part)).map(|(_, role)| *role).max()
        }
        None => of_name(name),
    }
}

fn of_name(name: &str) -> Option<Role> {
    if INSTANCES.iter().any(|prefix| name.starts_with(prefix)) {
        return Some(Role::Datastore);
    }
    PARTS.iter().find(|(part, _)| *part == name).map(|(_, role)| *role)
}

/// The last part of an image's path, without tag, digest, RKE2's prefix, or the architecture.
fn image_name(image: &str) -> String {
    let image = image.split('@').next().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let name = name.strip_prefix("hardened-").unwrap_or(name);
    let plain = ["-amd64", "-arm64", "-arm", "-ppc64le", "-s390x", "-riscv64"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    plain.unwrap_or(name).to_owned()
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
