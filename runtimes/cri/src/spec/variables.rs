//! A container's environment.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as k8s;
use winddown_engine::environment::environment;
use winddown_shared::{Pod, RuntimeError};

use super::super::CriConfig;

/// The environment of the container according to its spec. `ips` are the values of
/// `status.podIP` and `status.podIPs`.
///
/// # Errors
/// The source of a variable is not known here.
pub(crate) fn variables(
    config: &CriConfig,
    pod: &Pod,
    ips: &[String],
    container: &k8s::Container,
    field: &str,
) -> Result<Vec<(String, String)>, RuntimeError> {
    let container = with_addresses(container, ips);
    environment(pod, &container, &config.node).map_err(|error| error.of(field))
}

/// Fills in the pod's addresses: a pod with a network of its own has other addresses than the node.
fn with_addresses<'a>(container: &'a k8s::Container, ips: &[String]) -> Cow<'a, k8s::Container> {
    let asks = |var: &k8s::EnvVar| {
        let field = var.value_from.as_ref().and_then(|s| s.field_ref.as_ref())?;
        match field.field_path.as_str() {
            "status.podIP" => Some(ips.first()?.clone()),
            "status.podIPs" if !ips.is_empty() => Some(ips.join(",")),
            _ => None,
        }
    };
    if !container.env.iter().flatten().any(|var| asks(var).is_some()) {
        return Cow::Borrowed(container);
    }
    let mut own = container.clone();
    for var in own.env.iter_mut().flatten() {
        if let Some(value) = asks(var) {
            var.value = Some(value);
            var.value_from = None;
        }
    }
    Cow::Owned(own)
}
