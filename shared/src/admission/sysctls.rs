//! Which kernel parameters a pod may set.

use crate::Pod;

/// The parameters that a pod has for itself alone and that harm no other, as the kubelet's default has them. All
/// kernels that winddown runs on have them per namespace.
const SAFE: [&str; 12] = [
    IPC,
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
/// The only one of them that belongs to the IPC namespace; the others belong to that of the network.
const IPC: &str = "kernel.shm_rmid_forced";

/// Why the pod may not set one of the parameters that it asks for, in the kubelet's words.
pub(super) fn forbidden(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let asked = spec.security_context.as_ref()?.sysctls.as_deref()?;
    asked.iter().find_map(|sysctl| {
        let name = with_dots(&sysctl.name);
        let (namespace, is_hosts) = match &*name {
            IPC => ("IPC", spec.host_ipc == Some(true)),
            name if SAFE.contains(&name) => ("Net", spec.host_network == Some(true)),
            name => return Some(format!("forbidden sysctl: {name:?} not allowlisted")),
        };
        is_hosts.then(|| {
            format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled")
        })
    })
}

/// `net/ipv4/a.b` is written `net.ipv4.a/b` too (sysctl.d(5)).
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
