//! The variables that tell containers about services. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as api;

/// The namespace of the service whose variables every pod gets.
pub(crate) const MASTER_NAMESPACE: &str = "default";
pub(crate) const MASTER: &str = "kubernetes";

/// Returns the variables of a pod: those of `own`, the services of its namespace, if it wants them,
/// and always those of `default/kubernetes`. Sorted by the services' names; names are not repeated.
pub(crate) fn variables(
    own: &[api::Service],
    master: Option<&api::Service>,
    wants_links: bool,
) -> Vec<(String, String)> {
    let is_master = |s: &api::Service| {
        s.metadata.name.as_deref() == Some(MASTER)
            && s.metadata.namespace.as_deref() == Some(MASTER_NAMESPACE)
    };
    let own = own.iter().filter(|s| wants_links && !is_master(s));
    let mut services: Vec<(&str, &api::Service)> = own
        .chain(master)
        .map(|service| (service.metadata.name.as_deref().unwrap_or_default(), service))
        .collect();
    // A service `kubernetes` in the pod's own namespace takes the place of the master.
    services.sort_by_key(|(name, service)| (*name, is_master(service)));
    services.dedup_by_key(|(name, _)| *name);
    services.into_iter().flat_map(|(name, service)| of_service(name, service)).collect()
}

fn of_service(name: &str, service: &api::Service) -> Vec<(String, String)> {
    let spec = service.spec.as_ref();
    let address = spec.and_then(|s| s.cluster_ip.as_deref()).unwrap_or_default();
    let ports = spec.and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let Some(first) = ports.first().filter(|_| !matches!(address, "" | "None")) else {
        return Vec::new();
    };
    let prefix = in_variables(name);
    let mut all = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = format!("{prefix}_SERVICE_PORT_{}", in_variables(name));
            all.push((name, port.port.to_string()));
        }
    }
    for (i, port) in ports.iter().enumerate() {
        links(&prefix, address, port, i == 0, &mut all);
    }
    all
}

/// Adds the variables in the form of Docker's container links.
fn links(
    prefix: &str,
    address: &str,
    port: &api::ServicePort,
    is_first: bool,
    all: &mut Vec<(String, String)>,
) {
    let protocol = port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP");
    let (upper, lower) = (protocol.to_uppercase(), protocol.to_lowercase());
    let url = match address.parse() {
        Ok(IpAddr::V6(_)) => format!("{lower}://[{address}]:{}", port.port),
        _ => format!("{lower}://{address}:{}", port.port),
    };
    if is_first {
        all.push((format!("{prefix}_PORT"), url.clone()));
    }
    let prefix = format!("{prefix}_PORT_{}_{upper}", port.port);
    all.push((prefix.clone(), url));
    all.push((format!("{prefix}_PROTO"), lower));
    all.push((format!("{prefix}_PORT"), port.port.to_string()));
    all.push((format!("{prefix}_ADDR"), address.to_owned()));
}

fn in_variables(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests;
