//! The API's defaults, which must be filled in here because no API server does so for a pod from a file.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use winddown_shared::{SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY};

/// Fills in the values that `spec` omits, as the API server would.
pub(super) fn fill(spec: Option<&mut api::PodSpec>) {
    let Some(spec) = spec else { return };
    or(&mut spec.restart_policy, "Always");
    or(&mut spec.dns_policy, "ClusterFirst");
    or(&mut spec.scheduler_name, "default-scheduler");
    let grace = spec.termination_grace_period_seconds.get_or_insert(30);
    if *grace < 0 {
        *grace = 1;
    }
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    if spec.priority.is_none() {
        spec.priority = spec.priority_class_name.as_deref().and_then(class_priority);
    }
    let host_network = spec.host_network == Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        fill_container(container, host_network);
    }
    for volume in spec.volumes.iter_mut().flatten() {
        fill_volume(volume);
    }
}

/// The key of the annotation that names the AppArmor profile of a container, with the container's name after it.
pub(super) const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// What is before the name of a profile of this node.
pub(super) const LOCALHOST: &str = "localhost/";

/// Writes the AppArmor profiles that annotations name into the containers that have no other, as the API server does:
/// the runtimes know the field alone.
pub(super) fn fill_profiles(pod: &mut api::Pod) {
    let (Some(said), Some(spec)) = (&pod.metadata.annotations, &mut pod.spec) else { return };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let said = said.get(&format!("{APPARMOR}{}", container.name)).map(String::as_str);
        let Some(profile) = said.and_then(profile) else { continue };
        let security = container.security_context.get_or_insert_default();
        security.app_armor_profile.get_or_insert(profile);
    }
}

/// The profile that the annotation means; none if it is empty.
fn profile(said: &str) -> Option<api::AppArmorProfile> {
    let (kind, name) = match said {
        "runtime/default" => ("RuntimeDefault", None),
        "unconfined" => ("Unconfined", None),
        named => ("Localhost", Some(named.strip_prefix(LOCALHOST)?.to_owned())),
    };
    Some(api::AppArmorProfile { type_: kind.to_owned(), localhost_profile: name })
}

/// The priorities of the two classes that exist in every cluster.
pub(super) fn class_priority(class: &str) -> Option<i32> {
    match class {
        "system-node-critical" => Some(SYSTEM_NODE_CRITICAL_PRIORITY),
        "system-cluster-critical" => Some(SYSTEM_CRITICAL_PRIORITY),
        _ => None,
    }
}

fn or(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.to_owned());
    }
}

/// In these fields, 0 is as good as nothing.
fn or_number(field: &mut Option<i32>, default: i32) {
    if field.is_none_or(|number| number == 0) {
        *field = Some(default);
    }
}

fn fill_container(container: &mut api::Container, host_network: bool) {
    or(&mut container.termination_message_path, "/dev/termination-log");
    or(&mut container.termination_message_policy, "File");
    if let Some(image) = container.image.as_deref().filter(|image| !image.is_empty()) {
        let policy = pull_policy(image);
        or(&mut container.image_pull_policy, policy);
    }
    for port in container.ports.iter_mut().flatten() {
        or(&mut port.protocol, "TCP");
        if host_network {
            or_number(&mut port.host_port, port.container_port);
        }
    }
    for env in container.env.iter_mut().flatten() {
        let field = env.value_from.as_mut().and_then(|from| from.field_ref.as_mut());
        if let Some(field) = field {
            or(&mut field.api_version, "v1");
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for probe in probes.into_iter().flatten() {
        or_number(&mut probe.timeout_seconds, 1);
        or_number(&mut probe.period_seconds, 10);
        or_number(&mut probe.success_threshold, 1);
        or_number(&mut probe.failure_threshold, 3);
        fill_http(probe.http_get.as_mut());
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            fill_http(hook.http_get.as_mut());
        }
    }
    if let Some(resources) = &mut container.resources {
        request_what_is_limited(resources);
    }
}

fn fill_http(action: Option<&mut api::HTTPGetAction>) {
    if let Some(action) = action {
        or(&mut action.path, "/");
        or(&mut action.scheme, "HTTP");
    }
}

fn request_what_is_limited(resources: &mut api::ResourceRequirements) {
    let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) else {
        return;
    };
    let requests: &mut BTreeMap<String, Quantity> = resources.requests.get_or_insert_default();
    for (resource, limit) in limits {
        requests.entry(resource.clone()).or_insert_with(|| limit.clone());
    }
}

/// `Always` for `latest`, explicit or implied; otherwise `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.rsplit_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn fill_volume(volume: &mut api::Volume) {
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    let empty = api::Volume { name: volume.name.clone(), ..Default::default() };
    if *volume == empty {
        volume.empty_dir = Some(api::EmptyDirVolumeSource::default());
    }
}
