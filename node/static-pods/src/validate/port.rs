//! `ports[]` of a container.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::rules;

/// The ports that containers have taken on the host, each with its protocol and address.
pub(super) type Taken<'a> = BTreeSet<(i32, &'a str, &'a str)>;

pub(super) fn all<'a>(
    check: &mut FieldCheck<'_>,
    container: &'a api::Container,
    host_ports: &mut Taken<'a>,
) {
    let mut names = BTreeSet::new();
    check.each("ports", container.ports.iter().flatten(), |check, port| {
        rules::port(check, "containerPort", port.container_port);
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        rules::word(check, "protocol", protocol, &["TCP", "UDP", "SCTP"]);
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
        rules::port(check, "hostPort", host_port);
        if !host_ports.insert((host_port, protocol, port.host_ip.as_deref().unwrap_or_default())) {
            let what = format!("{host_port} is taken by another port of this pod: write another");
            check.fail_at("hostPort", what);
        }
    });
}

/// On the host's network, a port is the same inside and outside.
pub(super) fn same_on_host(check: &mut FieldCheck<'_>, container: &api::Container) {
    check.each("ports", container.ports.iter().flatten(), |check, port| {
        if port.host_port.is_some_and(|host_port| host_port != port.container_port) {
            let what = "has to be containerPort's, because the pod has hostNetwork: remove it";
            check.fail_at("hostPort", what);
        }
    });
}
