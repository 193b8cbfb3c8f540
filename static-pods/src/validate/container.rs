//! Containers, init containers and sidecars.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;

use super::{LABEL_RULE, handler, one_of, resources};
use winddown_yaml::{Check, Shortened, names};

/// The names of the containers seen so far, each with its field.
type Names<'a> = std::collections::BTreeMap<&'a str, String>;

pub(super) fn all(check: &mut Check<'_>, spec: &api::PodSpec, volumes: &BTreeSet<&str>) {
    if spec.containers.is_empty() {
        check.fail_at("containers", "is missing: a pod needs at least one container");
    }
    let mut names = Names::new();
    let mut host_ports = BTreeSet::new();
    let init = spec.init_containers.iter().flatten().map(|container| (true, container));
    let main = spec.containers.iter().map(|container| (false, container));
    let mut count = [0_usize; 2];
    for (is_init, container) in init.chain(main) {
        let key = if is_init { "initContainers" } else { "containers" };
        let index = count[usize::from(is_init)];
        count[usize::from(is_init)] += 1;
        check.key(key, |check| {
            check.index(index, |check| {
                name(check, container, &mut names, format!("spec.{key}[{index}]"));
                one(check, container, is_init, volumes);
                ports(check, container, spec.host_network == Some(true), &mut host_ports);
            });
        });
    }
}

fn name<'a>(
    check: &mut Check<'_>,
    container: &'a api::Container,
    names: &mut Names<'a>,
    place: String,
) {
    let name = container.name.as_str();
    if name.is_empty() {
        check.fail_at("name", "is missing: every container needs a name");
    } else if !names::is_dns_label(name) {
        let what = format!("`{}` is no container name: {LABEL_RULE}", Shortened(name));
        check.fail_at("name", what);
    } else if let Some(first) = names.get(name) {
        check.fail_at("name", format!("`{name}` is the name of {first} already: write another"));
    } else {
        names.insert(name, place);
    }
}

fn one(check: &mut Check<'_>, container: &api::Container, is_init: bool, volumes: &BTreeSet<&str>) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() && container.command.as_ref().is_none_or(Vec::is_empty) {
        check.fail("has neither `image` nor `command`: write what it runs");
    }
    if image.contains(char::is_whitespace) {
        check.fail_at("image", "has a blank in it: remove it");
    }
    if container.command.as_ref().and_then(|c| c.first()).is_some_and(String::is_empty) {
        check.fail_at("command", "starts with an empty text: write the program to run");
    }
    let pull = ["Always", "IfNotPresent", "Never"];
    one_of(check, "imagePullPolicy", container.image_pull_policy.as_ref(), &pull);
    let policy = container.termination_message_policy.as_ref();
    one_of(check, "terminationMessagePolicy", policy, &["File", "FallbackToLogsOnError"]);
    match container.restart_policy.as_deref() {
        None => {}
        Some("Always") if is_init => {}
        Some(_) if is_init => {
            check.fail_at("restartPolicy", "makes a sidecar of an init container: write Always");
        }
        Some(_) => {
            let what = "is for init containers only: write spec.restartPolicy instead";
            check.fail_at("restartPolicy", what);
        }
    }
    environment(check, container);
    mounts(check, container, volumes);
    if let Some(requirements) = &container.resources {
        check.key("resources", |check| resources::check(check, requirements));
    }
    let sidecar = is_init && container.restart_policy.as_deref() == Some("Always");
    handler::all(check, container, is_init && !sidecar);
}

fn environment(check: &mut Check<'_>, container: &api::Container) {
    const RULE: &str = "write printable ASCII characters without `=`";
    check.each("env", container.env.iter().flatten(), |check, env| {
        let valid = |b: u8| b.is_ascii_graphic() && b != b'=' || b == b' ';
        if env.name.is_empty() {
            check.fail_at("name", format!("is missing: {RULE}"));
        } else if !env.name.bytes().all(valid) {
            // Not quoted: with `name: PASSWORD=…` the name includes the value.
            check.fail_at("name", format!("is no variable name: {RULE}"));
        }
        if env.value.as_ref().is_some_and(|value| value.contains('\0')) {
            check.fail_at("value", "has a zero byte in it: remove it");
        }
        let Some(from) = &env.value_from else { return };
        if env.value.as_ref().is_some_and(|value| !value.is_empty()) {
            check.fail("has `value` and `valueFrom`: remove one of them");
        }
        check.key("valueFrom", |check| {
            let api = [
                ("configMapKeyRef", from.config_map_key_ref.is_some()),
                ("secretKeyRef", from.secret_key_ref.is_some()),
            ];
            for (key, _) in api.iter().filter(|(_, set)| *set) {
                check.fail_at(key, super::NEEDS_API_SERVER);
            }
            let sources = [from.field_ref.is_some(), from.resource_field_ref.is_some()];
            let count =
                sources.iter().chain(api.iter().map(|(_, set)| set)).filter(|s| **s).count();
            if count != 1 {
                check.fail("needs exactly one of fieldRef and resourceFieldRef");
            }
        });
    });
    if container.env_from.as_ref().is_some_and(|list| !list.is_empty()) {
        check.fail_at("envFrom", super::NEEDS_API_SERVER);
    }
}

fn mounts(check: &mut Check<'_>, container: &api::Container, volumes: &BTreeSet<&str>) {
    let mut paths = BTreeSet::new();
    check.each("volumeMounts", container.volume_mounts.iter().flatten(), |check, mount| {
        if mount.name.is_empty() {
            check.fail_at("name", "is missing: write the name of a volume in spec.volumes");
        } else if !volumes.contains(mount.name.as_str()) {
            let what = format!("`{}` is not a volume in spec.volumes", Shortened(&mount.name));
            check.fail_at("name", what);
        }
        if mount.mount_path.is_empty() {
            check.fail_at("mountPath", "is missing: write where in the container it goes");
        } else if !paths.insert(mount.mount_path.as_str()) {
            let what =
                format!("`{}` is mounted twice: write another", Shortened(&mount.mount_path));
            check.fail_at("mountPath", what);
        }
        for (key, path) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            let Some(path) = path else { continue };
            if path.starts_with('/') || path.split('/').any(|part| part == "..") {
                check.fail_at(key, "leads out of the volume: write a path below it, without `..`");
            }
        }
        let propagation = ["None", "HostToContainer", "Bidirectional"];
        one_of(check, "mountPropagation", mount.mount_propagation.as_ref(), &propagation);
    });
    check.each("volumeDevices", container.volume_devices.iter().flatten(), |check, device| {
        if !volumes.contains(device.name.as_str()) {
            let what = format!("`{}` is not a volume in spec.volumes", Shortened(&device.name));
            check.fail_at("name", what);
        }
    });
}

fn ports(
    check: &mut Check<'_>,
    container: &api::Container,
    host_network: bool,
    host_ports: &mut BTreeSet<(i32, String, String)>,
) {
    const RANGE: std::ops::RangeInclusive<i32> = 1..=65535;
    let mut names = BTreeSet::new();
    check.each("ports", container.ports.iter().flatten(), |check, port| {
        if !RANGE.contains(&port.container_port) {
            let what = format!("is {}: write a port from 1 to 65535", port.container_port);
            check.fail_at("containerPort", what);
        }
        one_of(check, "protocol", port.protocol.as_ref(), &["TCP", "UDP", "SCTP"]);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            if !names::is_port_name(name) {
                let what = format!(
                    "`{}` is no port name: write lower-case letters, digits and `-`, at most 15",
                    Shortened(name)
                );
                check.fail_at("name", what);
            } else if !names.insert(name) {
                check.fail_at("name", format!("`{name}` is the name of another port already"));
            }
        }
        let Some(host_port) = port.host_port.filter(|port| *port != 0) else { return };
        if !RANGE.contains(&host_port) {
            check.fail_at("hostPort", format!("is {host_port}: write a port from 1 to 65535"));
        } else if host_network && host_port != port.container_port {
            let what = "has to be containerPort's, because the pod has hostNetwork: remove it";
            check.fail_at("hostPort", what);
        }
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        if !host_ports.insert((host_port, protocol, port.host_ip.clone().unwrap_or_default())) {
            let what = format!("{host_port} is taken by another port of this pod: write another");
            check.fail_at("hostPort", what);
        }
    });
}
