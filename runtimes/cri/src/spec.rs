//! Translates a pod's spec into requests to the runtime. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::environment::command_line;
use winddown_engine::files;
use winddown_shared::{ContainerKind, Pod, RuntimeError};

use super::kernel_limits::KernelLimits;
use super::{CriConfig, api, dirs, labels};

mod dns;
mod resources;
mod security;
mod variables;

pub(crate) use dns::{HostFacts, asks_only_this_host, dns};
pub(crate) use resources::{cgroup_parent, class_cgroup, pod_cgroup, pods_cgroup};
pub(crate) use security::{sandbox_security, user_of_image};
pub(crate) use variables::variables;

/// The facts about one start of a container.
pub(crate) struct ContainerStart<'a> {
    pub(crate) config: &'a CriConfig,
    pub(crate) pod: &'a Pod,
    /// The pod's IP addresses.
    pub(crate) ips: &'a [String],
    pub(crate) container: &'a k8s::Container,
    /// Field path of the container, for example `spec.containers[0]`.
    pub(crate) field: &'a str,
    pub(crate) kind: ContainerKind,
    pub(crate) place: usize,
    /// The ID of the container whose processes this one can see.
    pub(crate) target: Option<&'a str>,
    pub(crate) attempt: u32,
    pub(crate) backoff: Duration,
    pub(crate) image: &'a api::Image,
    /// The image's stop signal, if known.
    pub(crate) image_signal: Option<&'a str>,
    pub(crate) kernel: &'a KernelLimits,
    /// The paths that it does not see, unless it is privileged.
    pub(crate) masked: &'a [String],
}

/// The configuration of a container, without its mounts.
///
/// # Errors
/// The source of a variable is not known here, or the variables and the command line are too long.
pub(crate) fn container(start: &ContainerStart<'_>) -> Result<api::ContainerConfig, RuntimeError> {
    let ContainerStart { config, pod, container, field, .. } = start;
    let env = variables(config, pod, start.ips, container, field)?;
    let [command, args] = command_line(container, &env).map_err(|error| error.of(field))?;
    let kind = (start.kind, start.place);
    let log = files::run_log(&container.name, start.attempt);
    Ok(api::ContainerConfig {
        metadata: Some(api::ContainerMetadata {
            name: container.name.clone(),
            attempt: start.attempt,
        }),
        image: Some(api::ImageSpec {
            image: start.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..api::ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: labels::container(pod, &container.name),
        annotations: labels::container_annotations(
            pod,
            container,
            kind,
            start.attempt,
            start.backoff,
            own_signal(container).or(start.image_signal),
        ),
        envs: env
            .into_iter()
            .map(|(key, value)| api::KeyValue { key, value: value.into_bytes() })
            .collect(),
        log_path: log.display().to_string(),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        stop_signal: stop_signal(container).into(),
        linux: Some(api::LinuxContainerConfig {
            resources: Some(resources::resources(
                pod,
                container,
                config.node.memory_bytes,
                start.kernel,
            )),
            security_context: Some(security::container_security(
                pod,
                container,
                start.target,
                start.image,
                &config.paths.seccomp,
                start.masked,
            )),
        }),
        mounts: Vec::new(),
        devices: Vec::new(),
    })
}

/// The configuration of a pod's sandbox.
pub(crate) fn sandbox(
    config: &CriConfig,
    pod: &Pod,
    host: &HostFacts,
    cgroup_parent: String,
    attempt: u32,
) -> api::PodSandboxConfig {
    let is_on_host = pod.is_on_host_network();
    api::PodSandboxConfig {
        metadata: Some(api::PodSandboxMetadata {
            name: pod.name().to_string(),
            uid: pod.uid().to_string(),
            namespace: pod.namespace().to_string(),
            attempt,
        }),
        hostname: if is_on_host { String::new() } else { hostname(pod) },
        log_directory: dirs::logs_of(config, pod).display().to_string(),
        dns_config: dns(config, pod, host),
        port_mappings: if is_on_host { Vec::new() } else { pod.ports().map(port).collect() },
        labels: labels::sandbox(pod),
        annotations: labels::sandbox_annotations(pod),
        linux: Some(api::LinuxPodSandboxConfig {
            cgroup_parent,
            security_context: Some(sandbox_security(pod)),
            sysctls: sysctls(pod),
        }),
    }
}

/// The hostname of a pod with a network of its own.
pub(crate) fn hostname(pod: &Pod) -> String {
    if let Some(name) = hostname_override(pod) {
        return name.to_owned();
    }
    let asked = pod.spec.as_ref().and_then(|s| s.hostname.clone()).filter(|h| !h.is_empty());
    let mut name = asked.unwrap_or_else(|| pod.name().to_string());
    // Hostnames have at most 63 characters, and do not end with a separator.
    name.truncate(name.char_indices().nth(63).map_or(name.len(), |(at, _)| at));
    name.truncate(name.trim_end_matches(['-', '.']).len());
    name
}

/// The hostname that is used as written, without a domain (KEP-4762).
pub(crate) fn hostname_override(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.hostname_override.as_deref().filter(|name| !name.is_empty())
}

/// The container's own stop signal (KEP-4960); without one, the runtime uses the image's, or SIGTERM.
pub(crate) fn stop_signal(container: &k8s::Container) -> api::Signal {
    own_signal(container).and_then(signal).unwrap_or(api::Signal::RuntimeDefault)
}

fn own_signal(container: &k8s::Container) -> Option<&str> {
    container.lifecycle.as_ref()?.stop_signal.as_deref()
}

/// Parses a signal as Kubernetes writes it (`SIGUSR1`, `SIGRTMIN+3`).
pub(crate) fn signal(name: &str) -> Option<api::Signal> {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    api::Signal::from_str_name(&format!("SIGNAL_{name}"))
}

fn port(port: &k8s::ContainerPort) -> api::PortMapping {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => api::Protocol::Udp,
        Some("SCTP") => api::Protocol::Sctp,
        _ => api::Protocol::Tcp,
    };
    api::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}

fn sysctls(pod: &Pod) -> std::collections::HashMap<String, String> {
    let security = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let all = security.and_then(|s| s.sysctls.as_deref()).unwrap_or_default();
    all.iter().map(|s| (s.name.clone(), s.value.clone())).collect()
}

#[cfg(test)]
mod tests;
