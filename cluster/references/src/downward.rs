//! The downward API: what a pod can learn about itself. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, ResourceFieldError};

use super::problem::ReferenceProblem;

/// Delay until the retry of a pod that waits for the node's amounts.
const AMOUNTS_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The node's allocatable resources: what a container without a limit of its own may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAmounts {
    /// In thousandths of a CPU.
    pub cpu_milli: i64,
    /// In bytes.
    pub memory_bytes: i64,
    /// In bytes.
    pub ephemeral_storage_bytes: i64,
}

/// Why a field or amount cannot be resolved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResolveError {
    /// The container has no limit, and what the node has is not known yet.
    NodeUnknown,
    /// The reference is invalid, with a message for people.
    Wrong(String),
}

/// The value of a field that only the pod object has and runtimes do not; `None` for all others.
pub(crate) fn only_in_the_object(pod: &Pod, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref();
    match path {
        "metadata.labels" => Some(lines(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Some(lines(pod.metadata.annotations.as_ref())),
        "spec.restartPolicy" => {
            let policy = spec.and_then(|s| s.restart_policy.clone());
            Some(policy.unwrap_or_else(|| "Always".to_owned()))
        }
        "spec.schedulerName" => {
            let name = spec.and_then(|s| s.scheduler_name.clone());
            Some(name.unwrap_or_else(|| "default-scheduler".to_owned()))
        }
        _ => None,
    }
}

/// The value of a field as a downward API volume shows it.
///
/// # Errors
/// When a volume cannot show the field.
pub(crate) fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let keyed = |map: Option<&BTreeMap<String, String>>, key: &str| {
        map.and_then(|map| map.get(key)).cloned().unwrap_or_default()
    };
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        return match map {
            "metadata.labels" => Ok(keyed(pod.metadata.labels.as_ref(), key)),
            "metadata.annotations" => Ok(keyed(pod.metadata.annotations.as_ref(), key)),
            _ => Err(format!("{path} is not a field that a volume can show")),
        };
    }
    match path {
        "metadata.name" => Ok(pod.name().to_string()),
        "metadata.namespace" => Ok(pod.namespace().to_string()),
        "metadata.uid" => Ok(pod.uid().to_string()),
        _ => only_in_the_object(pod, path)
            .ok_or_else(|| format!("{path} is not a field that a volume can show")),
    }
}

/// The value of `limits.cpu` and the like for one container, in units of the divisor, rounded up. A container without
/// a limit has its pod's, or what the node has for pods. `own` is the container that refers to it, if any; it is used
/// where the selector names no container.
///
/// # Errors
/// When the container or the resource is unknown, an amount cannot be parsed, or the node's amounts are
/// needed but not known yet.
pub(crate) fn resource(
    pod: &Pod,
    selector: &api::ResourceFieldSelector,
    own: Option<&str>,
    node: Option<NodeAmounts>,
) -> Result<String, ResolveError> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let name = named.or(own).unwrap_or_default();
    let spec = pod.spec.as_ref();
    let mut containers = spec.iter().flat_map(|s| &s.containers);
    let mut init = spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    let container = containers.find(|c| c.name == name).or_else(|| init.find(|c| c.name == name));
    // Ephemeral containers have no amounts of their own.
    if container.is_none() && own != Some(name) {
        let why = format!("the pod has no container {name:?}: name one in `containerName`");
        return Err(ResolveError::Wrong(why));
    }
    let resources = container.and_then(|container| container.resources.as_ref());
    let of_node =
        |name: &str| node.map_or(Err(ResolveError::NodeUnknown), |node| Ok(node.of(name)));
    pod.resource_field(resources, selector, of_node)
}

/// One `key="value"` per line, sorted by key, quoted as Go does.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let mut text = String::new();
    for (key, value) in map.into_iter().flatten() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(key);
        text.push('=');
        quote(value, &mut text);
    }
    text
}

/// Quotes like Go's `%q`.
fn quote(value: &str, out: &mut String) {
    out.push('"');
    for c in value.chars() {
        let code = u32::from(c);
        // `escape_debug` escapes a leading combining mark, which Go prints as it is.
        let is_plain = |c: char| !format!("a{c}").escape_debug().any(|c| c == '\\');
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{7}' => out.write_str("\\a"),
            '\u{8}' => out.write_str("\\b"),
            '\u{c}' => out.write_str("\\f"),
            '\u{b}' => out.write_str("\\v"),
            _ if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
            _ if is_plain(c) => out.write_char(c),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push('"');
}

// === impl NodeAmounts ===

impl NodeAmounts {
    fn of(self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.cpu_milli,
            "memory" => self.memory_bytes,
            "ephemeral-storage" => self.ephemeral_storage_bytes,
            _ => 0,
        }
    }
}

// === impl ResolveError ===

impl ResolveError {
    /// The problem of a pod that has this reference in `field`.
    pub(crate) fn problem(self, field: impl FnOnce() -> String) -> ReferenceProblem {
        match self {
            Self::Wrong(why) => ReferenceProblem::Invalid { field: field(), why },
            Self::NodeUnknown => ReferenceProblem::Unreadable {
                message: format!("{}: what this node has is not known yet", field()),
                after: Some(AMOUNTS_RETRY_DELAY),
            },
        }
    }
}

impl From<ResourceFieldError> for ResolveError {
    fn from(error: ResourceFieldError) -> Self {
        Self::Wrong(error.why)
    }
}

impl From<String> for ResolveError {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

#[cfg(test)]
mod tests;
