//! `programs/packaging/kubernetes`: it is what the API's types have, it fits together, and it asks the node for what it needs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use winddown_config::{Config, Mode};

use crate::rights::compare::{daemon_set, manifest};

/// The one object of this type, read strictly.
fn one<T: DeserializeOwned + Serialize + k8s_openapi::Resource>(objects: &[Value]) -> T {
    let of_kind: Vec<&Value> = objects.iter().filter(|object| object["kind"] == T::KIND).collect();
    assert_eq!(of_kind.len(), 1, "{}", T::KIND);
    let typed: T = serde_json::from_value(of_kind[0].clone()).unwrap();
    // A field that the types do not have is passed over when it is read.
    assert_eq!(serde_json::to_value(&typed).unwrap(), *of_kind[0], "{}", T::KIND);
    typed
}

fn pod() -> (PodSpec, Container) {
    let set: DaemonSet = one(&daemon_set());
    let pod = set.spec.template.spec.unwrap();
    let [container] = &pod.containers[..] else { panic!("one container") };
    (pod.clone(), container.clone())
}

#[test]
fn every_object_has_the_fields_of_its_type_and_no_others() {
    let objects = daemon_set();
    let (config, set): (ConfigMap, DaemonSet) = (one(&objects), one(&objects));
    assert_eq!(objects.len(), 2);
    assert_eq!(config.metadata.namespace, set.metadata.namespace);
    let spec = set.spec;
    assert_eq!(spec.selector.match_labels, spec.template.metadata.unwrap().labels);
    let image = format!("localhost/winddown:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(pod().1.image, Some(image), "the name that programs/packaging/image.sh gives");
}

#[test]
fn its_account_is_the_one_that_has_the_rights_of_companion_and_writes_on_its_own_node() {
    let account: ServiceAccount = one(&manifest("own-node"));
    let binding: ClusterRoleBinding = one(&manifest("companion-mode"));
    let set: DaemonSet = one(&daemon_set());
    let (name, namespace) = (account.metadata.name.unwrap(), account.metadata.namespace.unwrap());
    assert_eq!(pod().0.service_account_name, Some(name.clone()));
    assert_eq!(set.metadata.namespace, Some(namespace.clone()));
    // What that role grants is what the agent uses and what doctor asks about: see `rights`.
    assert_eq!(binding.role_ref.name, "winddown:companion");
    let [subject] = &binding.subjects.unwrap()[..] else { panic!("one subject") };
    assert_eq!((&subject.name, subject.namespace.as_ref()), (&name, Some(&namespace)));
    let user = format!("system:serviceaccount:{namespace}:{name}");
    assert_eq!(user, crate::rights::compare::ACCOUNT, "whose requests the policies narrow");
}

/// What is mounted of the node, and whether it can be written to.
fn mounted() -> BTreeMap<String, bool> {
    let (pod, container) = pod();
    let volumes = pod.volumes.unwrap();
    let mounts = container.volume_mounts.unwrap();
    let named: BTreeSet<_> = mounts.iter().map(|mount| &mount.name).collect();
    assert_eq!(named, volumes.iter().map(|volume| &volume.name).collect(), "mounts and volumes");
    let mut mounted = BTreeMap::new();
    for mount in &mounts {
        let volume = volumes.iter().find(|volume| volume.name == mount.name).unwrap();
        let Some(host) = &volume.host_path else { continue };
        assert_eq!(host.path, mount.mount_path, "a path is the same inside and outside");
        mounted.insert(host.path.clone(), mount.read_only != Some(true));
    }
    mounted
}

#[test]
fn it_gets_of_the_node_what_it_needs_and_no_more() {
    let paths = mounted();
    let paths: Vec<_> = paths.iter().map(|(path, writes)| (path.as_str(), *writes)).collect();
    assert_eq!(
        paths,
        [
            ("/etc/systemd", false),
            ("/run/containerd", false),
            ("/run/dbus", false),
            ("/run/systemd/logind.conf.d", true),
            ("/run/winddown", true),
            ("/usr/lib/systemd", false),
            ("/var/lib/kubelet", false),
            ("/var/lib/winddown", true),
        ]
    );
    let (pod, container) = pod();
    // Other pods' processes are looked at, and nothing else is shared.
    assert_eq!((pod.host_pid, pod.host_ipc, pod.host_users), (Some(true), None, None));
    let context = container.security_context.unwrap();
    assert_eq!((context.privileged, context.allow_privilege_escalation), (None, Some(false)));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.unwrap();
    assert_eq!((capabilities.add, capabilities.drop), (None, Some(vec!["ALL".to_owned()])));
}

#[test]
fn its_configuration_is_accepted_and_finds_all_it_names_in_a_mount() {
    let file: ConfigMap = one(&daemon_set());
    let text = &file.data.unwrap()["config.yaml"];
    let (config, warnings) = Config::parse(Path::new("config.yaml"), text.as_bytes()).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(config.node.mode, Mode::Companion);
    assert_eq!(config.cluster.kubeconfig, None, "the account of the pod is used");
    let paths = mounted();
    let bus = pod().1.env.unwrap().into_iter().find(|one| one.name == "DBUS_SYSTEM_BUS_ADDRESS");
    let bus = bus.and_then(|one| one.value).unwrap();
    for (wanted, writes) in [
        (config.node.container_runtime_endpoint.strip_prefix("unix://").unwrap(), false),
        (bus.strip_prefix("unix:path=").unwrap(), false),
        (config.access.control_socket.to_str().unwrap(), true),
        (config.access.state_directory.join("file").to_str().unwrap(), true),
    ] {
        let parent = Path::new(wanted).parent().unwrap().to_str().unwrap();
        assert_eq!(paths.get(parent), Some(&writes), "{wanted}");
    }
}

#[test]
fn the_guide_leaves_the_pods_to_the_kubelet_until_the_agent_holds_the_lock() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(repository.join("docs/tutorials/beside-a-kubelet.md"));
    let page = page.unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, guide) = page.split_once("## As a DaemonSet").unwrap();
    let at = |text: &str| guide.find(text).unwrap_or_else(|| panic!("no {text:?} in {guide}"));
    // In this order, and back in the reverse of it.
    let steps = [
        "kubectl apply -k",
        "wait --for=lock",
        "switch off the kubelet's own",
        "switch it on again",
        "kubectl delete -k",
    ];
    assert!(steps.iter().map(|step| at(step)).is_sorted(), "{guide}");
}
