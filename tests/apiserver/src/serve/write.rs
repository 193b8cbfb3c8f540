//! POST, PUT, PATCH and DELETE of stored objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Reply;
use super::call::Call;
use super::read::without_type;
use crate::core::Core;
use crate::eviction;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::store::Key;
use crate::strategic;
use crate::target::Target;
use crate::write::{DeleteOptions, Deleted, Writer, text};

pub(super) fn carry_out(
    core: &mut Core,
    target: &Target,
    call: &Call,
    node: Option<&str>,
) -> Result<Reply, Refusal> {
    let body = call.written()?;
    let mut dry = dry_run(call, body).then(|| core.store.clone());
    let now = core.clock.now();
    let store = dry.as_mut().unwrap_or(&mut core.store);
    let mut writer = Writer { store, now, node: node.map(str::to_owned) };
    match (call.right.verb.as_str(), target.name.as_deref(), target.subresource.as_deref()) {
        ("create", None, None) => Ok(Reply::Object(201, writer.create(target, body.clone())?)),
        ("create", Some(_), Some("eviction")) if target.kind.is_pod() => {
            let pod = Target { subresource: None, ..target.clone() };
            let status = eviction::evict(&mut writer, &pod, body, &call.query)?;
            Ok(Reply::Object(201, Arc::new(status)))
        }
        ("create", Some(name), Some("binding")) if target.kind.is_pod() => {
            bind(&mut writer, target, name, body)
        }
        ("update", Some(name), sub) if is_written(target, sub) => {
            let key = Key::new(target.kind, target.namespace.as_deref(), name);
            let code = if writer.store.get(&key).is_some() { 200 } else { 201 };
            Ok(Reply::Object(code, writer.replace(target, name, body.clone())?))
        }
        ("patch", Some(name), sub) if is_written(target, sub) => {
            patch(&mut writer, target, name, call)
        }
        ("delete", Some(name), None) => {
            let options = DeleteOptions::of(body, &call.query)?;
            let deleted = writer.delete(target, name, &options)?;
            Ok(Reply::Object(200, answer_to_delete(target, deleted)))
        }
        ("deletecollection", None, None) => delete_all(&mut writer, target, call),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn is_written(target: &Target, subresource: Option<&str>) -> bool {
    match subresource {
        None => true,
        Some("status") => target.kind.status,
        Some("ephemeralcontainers" | "resize") => target.kind.is_pod(),
        Some("approval") => target.kind.plural == "certificatesigningrequests",
        Some(_) => false,
    }
}

fn dry_run(call: &Call, body: &Value) -> bool {
    let listed =
        |value: Option<&Value>| value.and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    call.query.is_dry_run()
        || call.right.verb.starts_with("delete") && listed(body.get("dryRun"))
        || call.right.subresource == "eviction" && listed(body.pointer("/deleteOptions/dryRun"))
}

fn patch(
    writer: &mut Writer<'_>,
    target: &Target,
    name: &str,
    call: &Call,
) -> Result<Reply, Refusal> {
    let patch = call.written()?;
    let kind = target.kind;
    let media = call.content_type.split(';').next().unwrap_or_default().trim();
    let strategic = match media {
        "application/merge-patch+json" => false,
        "application/strategic-merge-patch+json" => true,
        "application/apply-patch+yaml" => {
            let key = Key::new(kind, target.namespace.as_deref(), name);
            if writer.store.get(&key).is_none() && target.subresource.is_none() {
                return Ok(Reply::Object(201, writer.create(target, patch.clone())?));
            }
            true
        }
        other => {
            let message = format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/merge-patch+json, application/strategic-merge-patch+json; got {other}"
            );
            return Err(Refusal::new(415, "UnsupportedMediaType", message));
        }
    };
    let written = writer.update(target, name, |old| {
        let mut new = old.clone();
        if strategic {
            strategic::apply(kind, &mut new, patch)?;
        } else {
            strategic::merge(&mut new, patch);
        }
        Ok(new)
    })?;
    Ok(Reply::Object(200, written))
}

fn bind(
    writer: &mut Writer<'_>,
    target: &Target,
    name: &str,
    binding: &Value,
) -> Result<Reply, Refusal> {
    let key = Key::new(target.kind, target.namespace.as_deref(), name);
    let pod = writer.store.get(&key).ok_or_else(|| Refusal::not_found(target.kind, name))?;
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        let why = format!("pod {name} is already assigned to node \"{node}\"");
        return Err(Refusal::conflict(target.kind, name, &why));
    }
    let mut bound = Value::clone(pod);
    let node = text(binding, "/target/name");
    strategic::merge(&mut bound, &json!({"spec": {"nodeName": node}}));
    writer.store.put(key, bound);
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Reply::Object(201, Arc::new(status)))
}

fn delete_all(writer: &mut Writer<'_>, target: &Target, call: &Call) -> Result<Reply, Refusal> {
    let selector = Selector::of(target, &call.query)?;
    let options = DeleteOptions::of(call.written()?, &call.query)?;
    let found: Vec<(Key, Arc<Value>)> = writer
        .store
        .list(target.kind, &selector)
        .map(|(key, object)| (key.clone(), Arc::clone(object)))
        .collect();
    let mut items = Vec::new();
    for (key, object) in found {
        let one = Target {
            namespace: target.kind.namespaced.then(|| key.namespace.clone()),
            ..target.clone()
        };
        writer.delete(&one, &key.name, &options)?;
        items.push(without_type(&object));
    }
    let list = json!({
        "kind": format!("{}List", target.kind.kind), "apiVersion": target.kind.api_version(),
        "metadata": {"resourceVersion": writer.store.version().to_string()}, "items": items,
    });
    Ok(Reply::Object(200, Arc::new(list)))
}

/// The answer to a deletion: the object for a pod or while the deletion is pending, otherwise a `Status`.
fn answer_to_delete(target: &Target, deleted: Deleted) -> Arc<Value> {
    match deleted {
        Deleted::Pending(object) => object,
        Deleted::Gone(object) if target.kind.is_pod() => object,
        Deleted::Gone(object) => Arc::new(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {
                "name": text(&object, "/metadata/name"), "group": target.kind.group,
                "kind": target.kind.plural, "uid": text(&object, "/metadata/uid"),
            },
        })),
    }
}
