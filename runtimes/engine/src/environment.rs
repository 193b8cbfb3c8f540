//! Computes a container's environment and command line from its spec and the node's facts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use winddown_host::meminfo::MemInfo;
use winddown_host::{host_addresses, kernel};
use winddown_shared::{Allocatable, Pod, ResourceFieldError, ResourceName, RuntimeError};

/// The most bytes of a container's variables and command line together: a few variables that double each other
/// (`$(A)$(A)`) would take all memory. The kernel passes at most 6 MiB to a program.
const MOST_BYTES: usize = 8 << 20;

/// The most bytes of the variables and command lines of all containers of a pod: it may have thousands. Twice what a
/// pod's variables may take from the API.
const MOST_BYTES_OF_A_POD: usize = 64 << 20;

/// The most bytes of a path that the kernel takes.
const MOST_OF_A_PATH: usize = 4096;

/// The facts about the node that `valueFrom` may refer to.
#[derive(Clone, Debug)]
pub struct EnvironmentFacts {
    /// `spec.nodeName`, for pods that do not set it themselves.
    pub name: String,
    /// The configured addresses of the node (`nodeIP`), the primary one first. With none, they are found by
    /// [`host_addresses`](Self::host_addresses).
    pub addresses: Vec<IpAddr>,
    /// What the node has for pods: what a container without a limit may use. Read for each container that starts.
    pub allocatable: watch::Receiver<Allocatable>,
    /// The machine's memory in bytes.
    pub memory_bytes: i64,
}

/// A variable or a word of the command line whose value cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct EnvironmentError {
    /// Path below the container, for example `env[2].valueFrom.secretKeyRef`.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub why: String,
    /// Whether the value is only not known yet, and nothing is wrong with the pod.
    pub retryable: bool,
}

/// How many bytes the variables and the command line of a container may still take, and those of its pod.
pub(crate) struct VariablesRoom {
    of_container: usize,
    of_pod: usize,
}

impl VariablesRoom {
    /// The room of a whole pod.
    pub(crate) fn of_pod() -> Self {
        Self { of_container: MOST_BYTES, of_pod: MOST_BYTES_OF_A_POD }
    }

    /// Whether something did not fit into the pod's room.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.of_pod == 0
    }

    fn left(&self) -> usize {
        self.of_container.min(self.of_pod)
    }

    fn take(
        &mut self,
        bytes: usize,
        field: impl FnOnce() -> String,
    ) -> Result<(), EnvironmentError> {
        // Only what does not fit leaves the pod nothing.
        if bytes > self.of_container || bytes >= self.of_pod {
            return Err(self.too_large(field()));
        }
        self.of_container -= bytes;
        self.of_pod -= bytes;
        Ok(())
    }

    /// The error for `field`. As much as is left may have been copied to find that it does not fit, so the pod has
    /// taken that.
    fn too_large(&mut self, field: String) -> EnvironmentError {
        let (whose, most) = match self.of_pod <= self.of_container {
            true => ("variables and command lines of the pod's containers", MOST_BYTES_OF_A_POD),
            false => ("container's variables and command line", MOST_BYTES),
        };
        self.of_pod -= self.left();
        let why = format!(
            "the {whose} are longer than {} MiB with it: refer to fewer or shorter values, or put \
             them into a file of a volume",
            most >> 20
        );
        EnvironmentError { field, why, retryable: false }
    }
}

impl EnvironmentError {
    /// Converts to a runtime error for the container at `container`, for example `spec.containers[0]`.
    pub fn of(self, container: &str) -> RuntimeError {
        let what = format!("{container}.{self}");
        match self.retryable {
            true => RuntimeError::NotYet { what },
            // Pods that ask for something unavailable were refused before they were started.
            false => RuntimeError::Failed { what, source: None },
        }
    }
}

impl EnvironmentFacts {
    /// Reads the facts from this host; no address is configured, and nothing is reserved.
    pub fn of_this_host(proc_root: &Path) -> Self {
        let name = kernel::read_to_string(proc_root.join("sys/kernel/hostname"));
        let memory = kernel::read(proc_root.join("meminfo")).unwrap_or_default();
        let memory = MemInfo::parse(&memory).and_then(|info| i64::try_from(info.total).ok());
        let memory = memory.unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            name: name.map(|n| n.trim().to_owned()).unwrap_or_default(),
            addresses: Vec::new(),
            allocatable: unchanging([
                (ResourceName::Cpu, i64::try_from(cpus).unwrap_or(1).saturating_mul(1000)),
                (ResourceName::Memory, memory),
            ]),
            memory_bytes: memory,
        }
    }

    /// `status.hostIPs`, and the addresses of pods on the host's network, the primary one first: the configured ones, or
    /// the source addresses that this host uses towards the rest of the world. Empty until it has had a route there.
    ///
    /// Sends nothing, and does not block.
    pub fn host_addresses(&self) -> Vec<IpAddr> {
        if self.addresses.is_empty() { host_addresses() } else { self.addresses.clone() }
    }
}

/// Amounts of a node that stay as they are.
pub(crate) fn unchanging(
    amounts: impl IntoIterator<Item = (ResourceName, i64)>,
) -> watch::Receiver<Allocatable> {
    watch::channel(amounts.into_iter().collect()).1
}

/// The variables of `container`, in the spec's order; a later one of the same name wins.
///
/// # Errors
/// The source of a variable is unknown, or they are longer than 8 MiB.
pub fn environment(
    pod: &Pod,
    container: &api::Container,
    node: &EnvironmentFacts,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    environment_within(&mut VariablesRoom::of_pod(), pod, container, node)
}

/// The same for the next container of a pod that has this room. Variables that are replaced count too.
pub(crate) fn environment_within(
    room: &mut VariablesRoom,
    pod: &Pod,
    container: &api::Container,
    node: &EnvironmentFacts,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut done = Vec::<(String, String)>::new();
    // A pod may have a hundred thousand variables.
    let mut places = HashMap::<&str, usize>::new();
    room.of_container = MOST_BYTES;
    for (i, var) in container.env.iter().flatten().enumerate() {
        let field = || format!("env[{i}]");
        let value = match (var.value.as_deref().unwrap_or_default(), &var.value_from) {
            ("", None) => String::new(),
            ("", Some(source)) => sourced(pod, container, node, source).map_err(|e| {
                EnvironmentError { field: format!("env[{i}].valueFrom.{}", e.field), ..e }
            })?,
            // What was read from a source stands beside it.
            (text, _) => {
                expand(text, room.left(), |name| Some(done[*places.get(name)?].1.as_str()))
                    .ok_or_else(|| room.too_large(field()))?
            }
        };
        room.take(var.name.len() + value.len(), field)?;
        match places.get(var.name.as_str()) {
            Some(at) => done[*at].1 = value,
            None => {
                places.insert(&var.name, done.len());
                done.push((var.name.clone(), value));
            }
        }
    }
    Ok(done)
}

/// `command` and `args` with `$(VAR)` replaced. Empty if the container names neither.
///
/// # Errors
/// With the variables they are longer than 8 MiB.
pub fn command_line(
    container: &api::Container,
    env: &[(String, String)],
) -> Result<[Vec<String>; 2], EnvironmentError> {
    let taken: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut room = VariablesRoom::of_pod();
    room.of_container = room.of_container.saturating_sub(taken);
    command_line_within(&mut room, container, env)
}

/// The same for a container whose variables have taken their part of this room.
pub(crate) fn command_line_within(
    room: &mut VariablesRoom,
    container: &api::Container,
    env: &[(String, String)],
) -> Result<[Vec<String>; 2], EnvironmentError> {
    let values = by_name(env);
    let mut expanded = |list, words: &Option<Vec<String>>| {
        words_within(room, &values, list, words.as_deref().unwrap_or_default())
    };
    Ok([expanded("command", &container.command)?, expanded("args", &container.args)?])
}

/// The command of an exec probe with `$(VAR)` replaced, as with a kubelet: by what the container's `env` says in
/// `value`, references and `$$` in it as they are written. A variable with a `valueFrom` is empty; those of services and
/// of `envFrom`, whose source is empty here, are unknown.
///
/// # Errors
/// It is longer than 8 MiB.
pub(crate) fn probe_command(
    container: &api::Container,
    command: &[String],
) -> Result<Vec<String>, EnvironmentError> {
    probe_command_within(&mut VariablesRoom::of_pod(), "exec.command", container, command)
}

/// The same for the probe with this `field`, in what is left of the container's room.
pub(crate) fn probe_command_within(
    room: &mut VariablesRoom,
    field: &str,
    container: &api::Container,
    command: &[String],
) -> Result<Vec<String>, EnvironmentError> {
    let of_whole_objects = Some(api::EnvVarSource::default());
    let written = container.env.iter().flatten().filter(|var| var.value_from != of_whole_objects);
    let values = written.map(|var| {
        let value = var.value.as_deref().filter(|_| var.value_from.is_none());
        (var.name.as_str(), value.unwrap_or_default())
    });
    words_within(room, &values.collect(), field, command)
}

/// The words of `list`, a field of a container whose variables have taken their part of this room, with `$(VAR)`
/// replaced.
fn words_within(
    room: &mut VariablesRoom,
    values: &HashMap<&str, &str>,
    list: &str,
    words: &[String],
) -> Result<Vec<String>, EnvironmentError> {
    let mut all = Vec::with_capacity(words.len());
    for (i, word) in words.iter().enumerate() {
        let field = || format!("{list}[{i}]");
        let Some(word) = expand(word, room.left(), |name| values.get(name).copied()) else {
            return Err(room.too_large(field()));
        };
        room.take(word.len(), field)?;
        all.push(word);
    }
    Ok(all)
}

/// A `subPathExpr` with `$(VAR)` replaced.
///
/// # Errors
/// The kubelet's: the container lacks a variable, or it is empty. Or the path is too long for the kernel.
pub fn expand_path(text: &str, env: &[(String, String)]) -> Result<String, String> {
    let values = by_name(env);
    let mut missing = BTreeSet::new();
    let path = expand(text, MOST_OF_A_PATH, |name| {
        let value = values.get(name).copied().filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value
    });
    if !missing.is_empty() {
        return Err(format!("missing value for {}", Vec::from_iter(missing).join(", ")));
    }
    path.ok_or_else(|| {
        format!("the path is longer than {MOST_OF_A_PATH} bytes: refer to shorter values")
    })
}

fn by_name(env: &[(String, String)]) -> HashMap<&str, &str> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Replaces `$(VAR)` by its value. References to unknown variables stay as they are written; `$$` is a literal `$`. The
/// syntax is that of Kubernetes. `None` if the result is longer than `most` bytes.
fn expand<'a>(
    text: &str,
    most: usize,
    mut value_of: impl FnMut(&str) -> Option<&'a str>,
) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    // Nothing after the last `)` is a reference. Looking for the end of each `$(` there takes quadratic time.
    let (mut rest, plain) = text.split_at(text.rfind(')').map_or(0, |at| at + 1));
    while let Some(at) = rest.find('$') {
        if out.len() > most {
            return None;
        }
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|t| t.split_once(')')) {
            match value_of(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..at + name.len() + 3]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out.push_str(&plain.replace("$$", "$"));
    (out.len() <= most).then_some(out)
}

const NO_SERVER: &str = "there is no API server to read it from: write the value in `value`";

fn sourced(
    pod: &Pod,
    container: &api::Container,
    node: &EnvironmentFacts,
    source: &api::EnvVarSource,
) -> Result<String, EnvironmentError> {
    if let Some(field) = &source.field_ref {
        return field_value(pod, node, &field.field_path);
    }
    if let Some(resource) = &source.resource_field_ref {
        return resource_value(pod, container, node, resource);
    }
    let (kind, why) = if source.file_key_ref.is_some() {
        ("fileKeyRef", "files of variables are not read: write the value in `value`")
    } else if source.config_map_key_ref.is_some() {
        ("configMapKeyRef", NO_SERVER)
    } else {
        ("secretKeyRef", NO_SERVER)
    };
    Err(EnvironmentError { field: kind.to_owned(), why: why.to_owned(), retryable: false })
}

fn field_value(pod: &Pod, node: &EnvironmentFacts, path: &str) -> Result<String, EnvironmentError> {
    let error = |why: String, retryable| EnvironmentError {
        field: "fieldRef.fieldPath".to_owned(),
        why,
        retryable,
    };
    let refused = |why| error(why, false);
    let keyed = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default()
    };
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        return match map {
            "metadata.labels" => Ok(keyed(&pod.metadata.labels, key)),
            "metadata.annotations" => Ok(keyed(&pod.metadata.annotations, key)),
            _ => Err(refused(format!("{path} is not a field that a container can read"))),
        };
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => Ok(pod.name().to_string()),
        "metadata.namespace" => Ok(pod.namespace().to_string()),
        "metadata.uid" => Ok(pod.uid().to_string()),
        // The second is its old name.
        "spec.nodeName" | "spec.host" => {
            Ok(spec.and_then(|s| s.node_name.clone()).unwrap_or_else(|| node.name.clone()))
        }
        "spec.serviceAccountName" => {
            Ok(spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default())
        }
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => {
            address_value(path, &node.host_addresses()).map_err(|why| error(why, true))
        }
        _ => Err(refused(format!("{path} is not a field that a container can read"))),
    }
}

fn address_value(path: &str, addresses: &[IpAddr]) -> Result<String, String> {
    let shown =
        if path.ends_with("IPs") { addresses } else { &addresses[..addresses.len().min(1)] };
    if shown.is_empty() {
        let why = "the node has no route to anywhere yet, and so no address";
        return Err(format!("{path} is not known: {why}"));
    }
    Ok(shown.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(","))
}

/// `limits.cpu` and the like, in units of the divisor, rounded up as Kubernetes does. A container without a limit has its
/// pod's, or what the node has for pods.
fn resource_value(
    pod: &Pod,
    container: &api::Container,
    node: &EnvironmentFacts,
    selector: &api::ResourceFieldSelector,
) -> Result<String, EnvironmentError> {
    if selector.container_name.as_ref().is_some_and(|n| *n != container.name) {
        let why = "only the container's own resources are known: leave it out".to_owned();
        let field = "resourceFieldRef.containerName".to_owned();
        return Err(EnvironmentError { field, why, retryable: false });
    }
    pod.resource_field(container.resources.as_ref(), selector, |name| {
        Ok(node.allocatable.borrow().get(&ResourceName::from(name)))
    })
}

impl From<ResourceFieldError> for EnvironmentError {
    fn from(error: ResourceFieldError) -> Self {
        let field = format!("resourceFieldRef.{}", error.field);
        Self { field, why: error.why, retryable: false }
    }
}

#[cfg(test)]
mod tests;
