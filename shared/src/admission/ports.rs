//! Host ports that pods use.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ContainerPort;

use crate::Pod;

/// The address that stands for all addresses.
const ANY: &str = "0.0.0.0";

/// Host ports in use.
#[derive(Clone, Debug, Default)]
pub struct HostPorts(HashMap<i32, Vec<Bound>>);

/// One use of a port.
#[derive(Clone, Debug)]
struct Bound {
    protocol: Box<str>,
    address: Box<str>,
}

/// One port that a pod requests.
struct WantedPort<'a> {
    port: i32,
    protocol: &'a str,
    address: &'a str,
}

// === impl HostPorts ===

impl HostPorts {
    /// Adds the ports of a pod.
    pub fn add(&mut self, pod: &Pod) {
        self.add_where(pod, |_| true);
    }

    /// The subset with these port numbers.
    pub(super) fn only(&self, numbers: &[i32]) -> Self {
        let entry = |port: &i32| Some((*port, self.0.get(port)?.clone()));
        Self(numbers.iter().filter_map(entry).collect())
    }

    pub(super) fn add_where(&mut self, pod: &Pod, matters: impl Fn(i32) -> bool) {
        for wanted in wanted(pod).filter(|wanted| matters(wanted.port)) {
            let bound = Bound { protocol: wanted.protocol.into(), address: wanted.address.into() };
            self.0.entry(wanted.port).or_default().push(bound);
        }
    }

    /// The first port that the pod requests and that is in use: the same port and protocol, on the same
    /// address or on all of them.
    #[must_use]
    pub fn conflict(&self, pod: &Pod) -> Option<i32> {
        let is_taken = |wanted: &WantedPort<'_>| {
            let taken = self.0.get(&wanted.port).map(Vec::as_slice).unwrap_or_default();
            taken.iter().any(|bound| {
                *bound.protocol == *wanted.protocol
                    && (*bound.address == *wanted.address
                        || &*bound.address == ANY
                        || wanted.address == ANY)
            })
        };
        wanted(pod).find(is_taken).map(|wanted| wanted.port)
    }
}

pub(super) fn numbers(pod: &Pod) -> Vec<i32> {
    wanted(pod).map(|wanted| wanted.port).collect()
}

fn wanted(pod: &Pod) -> impl Iterator<Item = WantedPort<'_>> {
    let on_host = pod.is_on_host_network();
    pod.ports().filter_map(move |port| of(on_host, port))
}

fn of(on_host: bool, port: &ContainerPort) -> Option<WantedPort<'_>> {
    let given = port.host_port.filter(|port| *port > 0);
    // On the host's network, a container's port is a host port. The API server sets it in the pod;
    // a manifest may omit it.
    let shared = || on_host.then_some(port.container_port);
    let host_port = given.or_else(shared).filter(|port| *port > 0)?;
    Some(WantedPort {
        port: host_port,
        protocol: port.protocol.as_deref().filter(|text| !text.is_empty()).unwrap_or("TCP"),
        address: port.host_ip.as_deref().filter(|text| !text.is_empty()).unwrap_or(ANY),
    })
}
