//! Resolves the environment variables of containers that come from the API. Pure.
//!
//! The result is an ordinary `env` that any runtime can handle. Values that were read become
//! `value`, with each `$` doubled so that none is taken for a reference. Their source stays beside
//! them, an empty one for services and `envFrom`: the commands of probes see only what the pod's
//! spec says itself, and no spec has both. `$(NAME)` in the pod's own
//! values and `fieldRef` are left to the runtime; `resourceFieldRef` is resolved, because the
//! node's allocatable amounts are known here. If a name occurs twice the later one wins, so the
//! order is: services, `envFrom`, `env`.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, PodRef};

use super::allowance::Allowance;
use super::downward::{self, NodeAmounts};
use super::needs::Variables;
use super::object::{FoundObject, Object, ObjectKey, ObjectKind};
use super::problem::ReferenceProblem;
use winddown_cluster::events::{EventDraft, Subject};

/// The inputs for resolving variables.
pub(crate) struct EnvironmentInputs<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) objects: &'a HashMap<ObjectKey, FoundObject>,
    pub(crate) services: &'a [(String, String)],
    /// The node's allocatable amounts, once they are known.
    pub(crate) node: Option<NodeAmounts>,
}

/// Resolves the variables of one container and adds events about them to `events`. Stops at the first
/// required reference that is missing. `allowance` is that of the pod.
///
/// # Errors
/// When something required is missing or invalid, an object cannot be read, or it is more than is
/// allowed.
pub(crate) fn resolve(
    known: &EnvironmentInputs<'_>,
    container: &Variables<'_>,
    allowance: &mut Allowance,
    events: &mut Vec<EventDraft>,
) -> Result<Vec<api::EnvVar>, ReferenceProblem> {
    let mut env = whole_objects(known, container, allowance, events)?;
    for (i, var) in container.env.iter().enumerate() {
        let at = || format!("{}.env[{i}].valueFrom", container.field);
        let Some(source) = &var.value_from else {
            env.push(var.clone());
            continue;
        };
        if let Some(found) = from_value(known, container.name, var, source, at, events)? {
            let value = found.value.as_deref().unwrap_or_default();
            allowance.take(&container.field, variable_bytes(&found.name, value))?;
            env.push(found);
        }
    }
    Ok(env)
}

/// The variables of services and of `envFrom`.
fn whole_objects(
    known: &EnvironmentInputs<'_>,
    container: &Variables<'_>,
    allowance: &mut Allowance,
    events: &mut Vec<EventDraft>,
) -> Result<Vec<api::EnvVar>, ReferenceProblem> {
    let mut env: Vec<api::EnvVar> = Vec::new();
    // An object may have a hundred thousand keys.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut put = |name: String, value: &str| {
        let read = literal(name.clone(), value, api::EnvVarSource::default());
        match places.get(&name) {
            Some(at) => env[*at] = read,
            None => {
                places.insert(name, env.len());
                env.push(read);
            }
        }
    };
    for (name, value) in known.services {
        allowance.take(&container.field, variable_bytes(name, value))?;
        put(name.clone(), value);
    }
    for from in container.env_from {
        for (name, value) in from_source(known, container, from, allowance, events)? {
            put(name, &value);
        }
    }
    Ok(env)
}

struct Reference<'a> {
    kind: ObjectKind,
    name: &'a str,
    optional: bool,
}

fn from_source(
    known: &EnvironmentInputs<'_>,
    container: &Variables<'_>,
    from: &api::EnvFromSource,
    allowance: &mut Allowance,
    events: &mut Vec<EventDraft>,
) -> Result<Vec<(String, String)>, ReferenceProblem> {
    let map = from.config_map_ref.as_ref().map(|r| (ObjectKind::ConfigMap, &r.name, r.optional));
    let secret = from.secret_ref.as_ref().map(|r| (ObjectKind::Secret, &r.name, r.optional));
    let Some((kind, name, optional)) = map.or(secret) else { return Ok(Vec::new()) };
    let reference = Reference { kind, name, optional: optional == Some(true) };
    let Some(object) = look_up(known, &reference, None, events)? else { return Ok(Vec::new()) };
    let prefix = from.prefix.as_deref().unwrap_or_default();
    // The API server validates keys and prefixes: together they are a name that a variable can have.
    let variables = object.data.iter().map(|(key, value)| {
        let text = value.text();
        // Each `$` of a value is doubled.
        let bytes = variable_bytes(key, &text) + text.matches('$').count();
        allowance.take(&container.field, kept_bytes(prefix) + bytes)?;
        Ok((format!("{prefix}{key}"), text))
    });
    variables.collect()
}

fn from_value(
    known: &EnvironmentInputs<'_>,
    own: &str,
    var: &api::EnvVar,
    source: &api::EnvVarSource,
    at: impl Fn() -> String,
    events: &mut Vec<EventDraft>,
) -> Result<Option<api::EnvVar>, ReferenceProblem> {
    let map = source.config_map_key_ref.as_ref();
    let map = map.map(|r| (ObjectKind::ConfigMap, &r.name, &r.key, r.optional));
    let secret = source.secret_key_ref.as_ref();
    let secret = secret.map(|r| (ObjectKind::Secret, &r.name, &r.key, r.optional));
    if let Some((kind, name, key, optional)) = map.or(secret) {
        let reference = Reference { kind, name, optional: optional == Some(true) };
        let value = value_of_key(known, var, &reference, key, events)?;
        return Ok(value.map(|value| literal(var.name.clone(), &value, source.clone())));
    }
    if let Some(field) = &source.field_ref {
        return field_ref(known.pod, var, (source, field), at).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        let text = downward::resource(known.pod, resource, Some(own), known.node);
        let text = text.map_err(|error| error.problem(|| format!("{}.resourceFieldRef", at())))?;
        return Ok(Some(literal(var.name.clone(), &text, source.clone())));
    }
    let why =
        "only configMapKeyRef, secretKeyRef, fieldRef and resourceFieldRef are read: write one";
    Err(ReferenceProblem::Invalid { field: at(), why: why.to_owned() })
}

/// Keeps fields that the runtime knows, and resolves those that only the pod object has.
fn field_ref(
    pod: &Pod,
    var: &api::EnvVar,
    (source, field): (&api::EnvVarSource, &api::ObjectFieldSelector),
    at: impl Fn() -> String,
) -> Result<api::EnvVar, ReferenceProblem> {
    let version = field.api_version.as_deref().unwrap_or("v1");
    if !matches!(version, "" | "v1") {
        let why = format!("{version} is not known: write `v1`");
        return Err(ReferenceProblem::Invalid {
            field: format!("{}.fieldRef.apiVersion", at()),
            why,
        });
    }
    match downward::only_in_the_object(pod, &field.field_path) {
        Some(value) => Ok(literal(var.name.clone(), &value, source.clone())),
        None => Ok(var.clone()),
    }
}

fn value_of_key(
    known: &EnvironmentInputs<'_>,
    var: &api::EnvVar,
    reference: &Reference<'_>,
    key: &str,
    events: &mut Vec<EventDraft>,
) -> Result<Option<String>, ReferenceProblem> {
    let Some(object) = look_up(known, reference, Some(&var.name), events)? else { return Ok(None) };
    if let Some(value) = object.data.get(key) {
        return Ok(Some(value.text()));
    }
    let (kind, name) = (reference.kind, reference.name);
    let lacks = format!("key {key:?} does not exist in {} {name:?}", kind.lower());
    let pod = known.pod;
    if reference.optional {
        let reason = format!("Optional{}KeyNotFound", kind.as_str());
        let message = format!("skipping optional envvar {:?}: {lacks}", var.name);
        events.push(warning(pod.pod_ref(), reason, message));
        return Ok(None);
    }
    events.push(warning(pod.pod_ref(), format!("Mandatory{}KeyNotFound", kind.as_str()), lacks));
    Err(ReferenceProblem::Missing {
        key: ObjectKey::new(kind, pod.namespace(), name),
        version: object.version.clone(),
        is_for_volume: false,
        message: format!("couldn't find key {key} in {} {}/{name}", kind.as_str(), pod.namespace()),
    })
}

/// Returns the object, or `None` if it does not exist and is optional. `variable` is the variable
/// that refers to it, or `None` for a whole `envFrom`.
///
/// An unreadable object is an error even if it is optional, as in the kubelet: variables are
/// resolved once, and one that was left out because of an outage would be missing for good.
fn look_up<'a>(
    known: &EnvironmentInputs<'a>,
    reference: &Reference<'_>,
    variable: Option<&str>,
    events: &mut Vec<EventDraft>,
) -> Result<Option<&'a Object>, ReferenceProblem> {
    let Reference { kind, name, optional } = *reference;
    let who = if optional { "Optional" } else { "Mandatory" };
    let key = ObjectKey::new(kind, known.pod.namespace(), name);
    let (reason, message, outcome) = match known.objects.get(&key) {
        Some(FoundObject::There(object)) => return Ok(Some(object)),
        Some(FoundObject::Unreadable { error, after }) => {
            let what = format!("failed to read {} {name:?}", kind.lower());
            let message = format!("{what}: {error}");
            let problem = ReferenceProblem::Unreadable { message, after: *after };
            (format!("FailedToRead{who}{}", kind.as_str()), what, Err(problem))
        }
        Some(FoundObject::Missing) | None => {
            let what = format!("{} {name:?} not found", kind.lower());
            let message = match variable.filter(|_| optional) {
                Some(variable) => format!("skipping optional envvar {variable:?}: {what}"),
                None => what.clone(),
            };
            let problem = ReferenceProblem::Missing {
                key,
                version: None,
                is_for_volume: false,
                message: what,
            };
            let outcome = if optional { Ok(None) } else { Err(problem) };
            (format!("{who}{}NotFound", kind.as_str()), message, outcome)
        }
    };
    events.push(warning(known.pod.pod_ref(), reason, message));
    outcome
}

fn warning(pod: &PodRef, reason: impl Into<String>, message: String) -> EventDraft {
    EventDraft::warning(Subject::pod(pod), reason.into(), message)
}

/// The bytes of these variables of a container, which an earlier call resolved, but for values that its own spec has.
pub(crate) fn given_bytes(env: &[api::EnvVar]) -> usize {
    // One that is empty does not say where it came from.
    let may_be_read = |var: &&api::EnvVar| {
        var.value_from.is_some() || var.value.as_deref().is_none_or(str::is_empty)
    };
    env.iter()
        .filter(may_be_read)
        .map(|var| variable_bytes(&var.name, var.value.as_deref().unwrap_or_default()))
        .sum()
}

/// The bytes of a variable in the record of its pod.
fn variable_bytes(name: &str, value: &str) -> usize {
    let around = r#"{"name":"","value":"","valueFrom":{}},"#;
    around.len() + kept_bytes(name) + kept_bytes(value)
}

/// The bytes of a text in JSON, as which the node keeps the pod in memory: up to six for a character.
fn kept_bytes(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(of).sum()
}

fn literal(name: String, value: &str, source: api::EnvVarSource) -> api::EnvVar {
    // A runtime looks for the source of a value that is empty.
    let value_from = (!value.is_empty()).then_some(source);
    api::EnvVar { name, value: Some(value.replace('$', "$$")), value_from }
}

#[cfg(test)]
mod tests;
