//! The sysctls that a pod may set.

use crate::Pod;

/// The sysctls that are namespaced and harm no other pod, as in the kubelet's default. All kernels
/// that winddown supports have them per namespace.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The namespace (`IPC` or `Net`) of a sysctl, or of all that start with the text before a `*`.
/// `None` if it is not namespaced, as far as the kubelet knows.
pub fn sysctl_namespace(pattern: &str) -> Option<&'static str> {
    let name = with_dots(pattern);
    let name = name.split_once('*').map_or(&*name, |(prefix, _)| prefix);
    match name.strip_prefix("kernel.") {
        Some("sem" | "shm" | "shmall" | "shmmax" | "shmmni" | "shm_rmid_forced") => Some("IPC"),
        Some("msg" | "msgmax" | "msgmnb" | "msgmni") => Some("IPC"),
        _ if name.starts_with("fs.mqueue.") => Some("IPC"),
        _ => name.starts_with("net.").then_some("Net"),
    }
}

/// The reason why the pod may not set one of its sysctls, as the kubelet words it. `allowed` are
/// the ones that it may set in addition to the safe ones.
pub(super) fn forbidden(pod: &Pod, allowed: &[String]) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let asked = spec.security_context.as_ref()?.sysctls.as_deref()?;
    asked.iter().find_map(|sysctl| {
        let name = with_dots(&sysctl.name);
        let mut all = SAFE.into_iter().chain(allowed.iter().map(String::as_str));
        let namespace = all.find(|pattern| covers(pattern, &name)).and_then(sysctl_namespace);
        let Some(namespace) = namespace else {
            return Some(format!("forbidden sysctl: {name:?} not allowlisted"));
        };
        let is_hosts = if namespace == "IPC" { spec.host_ipc } else { spec.host_network };
        (is_hosts == Some(true)).then(|| {
            format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled")
        })
    })
}

fn covers(pattern: &str, name: &str) -> bool {
    let pattern = with_dots(pattern);
    match pattern.split_once('*') {
        Some((prefix, _)) => name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Converts `net/ipv4/a.b` to `net.ipv4.a/b`, which is equivalent (sysctl.d(5)).
fn with_dots(name: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.chars().map(swap).collect(),
        _ => name.to_owned(),
    }
}
