//! A container's environment.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::environment::{EnvironmentError, environment};
use winddown_shared::{Pod, RuntimeError};

use super::super::CriConfig;

/// The environment of the container according to its spec. `ips` are the values of
/// `status.podIP` and `status.podIPs`.
///
/// # Errors
/// The source of a variable is not known here, or not yet.
pub(crate) fn variables(
    config: &CriConfig,
    pod: &Pod,
    ips: &[String],
    container: &k8s::Container,
    field: &str,
) -> Result<Vec<(String, String)>, RuntimeError> {
    let container = with_addresses(pod, container, ips).map_err(|error| error.of(field))?;
    environment(pod, &container, &config.node).map_err(|error| error.of(field))
}

/// Fills in the pod's addresses: only those of a pod on the node's network are the node's.
fn with_addresses<'a>(
    pod: &Pod,
    container: &'a k8s::Container,
    ips: &[String],
) -> Result<Cow<'a, k8s::Container>, EnvironmentError> {
    let mut variables = container.env.iter().flatten().enumerate();
    let asking = variables.find_map(|(place, var)| Some((place, address_asked(var)?)));
    let Some((place, path)) = asking.filter(|_| !ips.is_empty() || !pod.is_on_host_network())
    else {
        return Ok(Cow::Borrowed(container));
    };
    let Some(first) = ips.first() else {
        let field = format!("env[{place}].valueFrom.fieldRef.fieldPath");
        let why = format!("{path} is not known: the container runtime names no address of the pod");
        return Err(EnvironmentError { field, why, retryable: true });
    };
    let mut own = container.clone();
    for var in own.env.iter_mut().flatten() {
        if let Some(path) = address_asked(var) {
            var.value = Some(if path == ALL { ips.join(",") } else { first.clone() });
            var.value_from = None;
        }
    }
    Ok(Cow::Owned(own))
}

const ALL: &str = "status.podIPs";

/// Which of the pod's addresses the variable asks for.
fn address_asked(var: &k8s::EnvVar) -> Option<&str> {
    let field = var.value_from.as_ref()?.field_ref.as_ref()?;
    Some(field.field_path.as_str()).filter(|path| matches!(*path, "status.podIP" | ALL))
}
