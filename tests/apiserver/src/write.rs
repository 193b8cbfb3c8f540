//! Writes to the store, with the rules of the real server.

mod delete;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) use self::delete::{DeleteOptions, Deleted};
use crate::clock;
use crate::kinds::Kind;
use crate::pods;
use crate::refusal::Refusal;
use crate::restriction;
use crate::rules;
use crate::store::{Key, Store};
use crate::target::Target;

/// Writes objects at one moment.
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) now: Timestamp,
    /// The node that writes, if nodes are restricted.
    pub(crate) node: Option<String>,
}

impl Writer<'_> {
    /// Creates an object (POST).
    pub(crate) fn create(
        &mut self,
        target: &Target,
        mut object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = target.kind;
        let name = self.name_of(target, &mut object)?;
        self.check_namespace(target, &name)?;
        let key = Key::new(kind, target.namespace.as_deref(), &name);
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(Refusal::broken(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if self.store.get(&key).is_some() {
            return Err(Refusal::already_exists(kind, &name));
        }
        let metadata = metadata_of(&mut object);
        metadata.remove("uid");
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
        if kind.is_pod() {
            pods::prepare(&mut object);
            pods::check_created(kind, &object)?;
        } else if kind.status && kind.plural != "nodes" {
            // Clients cannot set the status of a new object, except for nodes.
            fields_of(&mut object).remove("status");
        }
        if kind.plural == "nodes" {
            fields_of(&mut object).entry("spec").or_insert(json!({}));
        }
        if kind.plural == "poddisruptionbudgets" {
            let status = json!({
                "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            });
            fields_of(&mut object).insert("status".to_owned(), status);
        }
        if kind.plural == "namespaces" {
            fields_of(&mut object).insert("status".to_owned(), json!({"phase": "Active"}));
        }
        self.stamp(target, &name, &mut object);
        rules::check_created(kind, &name, &object)?;
        Ok(self.store.put(key, object))
    }

    /// Updates an object (PUT and PATCH): `change` derives the new object from the old one.
    pub(crate) fn update(
        &mut self,
        target: &Target,
        name: &str,
        change: impl FnOnce(&Value) -> Result<Value, Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = target.kind;
        let key = Key::new(kind, target.namespace.as_deref(), name);
        let old = Arc::clone(self.store.get(&key).ok_or_else(|| Refusal::not_found(kind, name))?);
        let mut new = change(&old)?;
        let preconditions = check_preconditions(kind, name, &old, &new);
        drop_empty_lists(kind, &mut new);
        keep_what_is_not_written(target, &old, &mut new);
        if let Some(node) = &self.node {
            restriction::admit_update(node, target, &old, &new)
                .map_err(|why| Refusal::forbidden(kind, name, &why))?;
        }
        // As in the real server, admission comes before them.
        preconditions?;
        if kind.is_pod() {
            pods::check_updated(kind, target.subresource.as_deref(), &old, &new)?;
        }
        rules::check_updated(kind, name, &old, &new)?;
        if kind.generation && old.get("spec") != new.get("spec") {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
            let next = generation.unwrap_or_default() + 1;
            metadata_of(&mut new).insert("generation".to_owned(), json!(next));
        }
        if same_but_for_the_version(&old, &new) {
            return Ok(old);
        }
        let written = self.store.put(key.clone(), new);
        if !delete::is_over(&written) {
            return Ok(written);
        }
        // The last finalizer was removed, and nothing else holds the object.
        Ok(self.store.remove(&key).unwrap_or(written))
    }

    /// Replaces an object (PUT).
    pub(crate) fn replace(
        &mut self,
        target: &Target,
        name: &str,
        object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = target.kind;
        let own = text(&object, "/metadata/name").to_owned();
        if !own.is_empty() && own != name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({own}) does not match the name on the URL ({name})"
            )));
        }
        let version = text(&object, "/metadata/resourceVersion");
        if kind.needs_version && (version.is_empty() || version == "0") {
            let key = Key::new(kind, target.namespace.as_deref(), name);
            if self.store.get(&key).is_some() {
                let why = "0: must be specified for an update";
                let field = "metadata.resourceVersion";
                return Err(Refusal::invalid(kind, name, field, "FieldValueInvalid", why));
            }
        }
        let key = Key::new(kind, target.namespace.as_deref(), name);
        let stored = self.store.get(&key).map_or("", |old| text(old, "/metadata/uid"));
        let wanted = text(&object, "/metadata/uid");
        if !stored.is_empty() && !wanted.is_empty() && wanted != stored {
            return Err(Refusal::other_uid(kind, name, wanted, stored));
        }
        if kind.create_on_update && self.store.get(&key).is_none() {
            let mut object = object;
            metadata_of(&mut object).insert("name".to_owned(), json!(name));
            return self.create(target, object);
        }
        self.update(target, name, |_| Ok(object))
    }

    /// Writes an object on behalf of the test: creates or changes spec and status at once, and keeps a given UID.
    pub(crate) fn place(
        &mut self,
        target: &Target,
        mut object: Value,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = target.kind;
        let name = self.name_of(target, &mut object)?;
        let key = Key::new(kind, target.namespace.as_deref(), &name);
        let Some(old) = self.store.get(&key) else {
            if kind.is_pod() {
                let status = fields_of(&mut object).remove("status");
                pods::prepare(&mut object);
                if let Some(status) = status {
                    crate::strategic::merge(&mut object, &json!({"status": status}));
                }
            }
            self.stamp(target, &name, &mut object);
            return Ok(self.store.put(key, object));
        };
        let old = Arc::clone(old);
        let mut new = Value::clone(&old);
        metadata_of(&mut object).remove("resourceVersion");
        crate::strategic::merge(&mut new, &object);
        if same_but_for_the_version(&old, &new) {
            return Ok(old);
        }
        Ok(self.store.put(key, new))
    }

    /// Sets the identity and the creation time of an object.
    fn stamp(&mut self, target: &Target, name: &str, object: &mut Value) {
        let uid = self.store.new_uid();
        let created = clock::seconds(self.now);
        let fields = fields_of(object);
        fields.insert("apiVersion".to_owned(), json!(target.kind.api_version()));
        fields.insert("kind".to_owned(), json!(target.kind.kind));
        let metadata = metadata_of(object);
        metadata.insert("name".to_owned(), json!(name));
        if let Some(namespace) = &target.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        metadata.entry("uid").or_insert(json!(uid));
        metadata.entry("creationTimestamp").or_insert(json!(created));
        if target.kind.generation {
            metadata.entry("generation").or_insert(json!(1));
        }
    }

    fn name_of(&mut self, target: &Target, object: &mut Value) -> Result<String, Refusal> {
        let kind = target.kind;
        if !object.is_object() {
            return Err(Refusal::bad_request("the body of the request is not an object"));
        }
        let namespace = text(object, "/metadata/namespace");
        if !namespace.is_empty() && Some(namespace) != target.namespace.as_deref() {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the \
                 request",
            ));
        }
        let name = text(object, "/metadata/name");
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        if let Some(name) = &target.name {
            return Ok(name.clone());
        }
        let stem = text(object, "/metadata/generateName").to_owned();
        if stem.is_empty() {
            let (field, why) = ("metadata.name", "name or generateName is required");
            return Err(Refusal::invalid(kind, "", field, "FieldValueRequired", why));
        }
        Ok(format!("{stem}{}", self.store.new_suffix()))
    }

    fn check_namespace(&self, target: &Target, name: &str) -> Result<(), Refusal> {
        let Some(namespace) = &target.namespace else { return Ok(()) };
        let Some(kind) = crate::kinds::called("namespaces") else { return Ok(()) };
        let found = self.store.get(&Key::new(kind, None, namespace));
        let found = found.ok_or_else(|| Refusal::not_found(kind, namespace))?;
        if text(found, "/metadata/deletionTimestamp").is_empty() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Err(Refusal::forbidden(target.kind, name, &why))
    }
}

/// Checks UID and resource version of the written object, which are preconditions of the write. A patch with another
/// UID is invalid, not a conflict.
fn check_preconditions(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    let (wanted, stored) = (text(new, "/metadata/uid"), text(old, "/metadata/uid"));
    if !wanted.is_empty() && wanted != stored {
        let why = format!("\"{wanted}\": field is immutable");
        return Err(Refusal::invalid(kind, name, "metadata.uid", "FieldValueInvalid", &why));
    }
    let (wanted, stored) =
        (text(new, "/metadata/resourceVersion"), text(old, "/metadata/resourceVersion"));
    if !wanted.is_empty() && wanted != "0" && wanted != stored {
        return Err(Refusal::modified(kind, name));
    }
    Ok(())
}

/// The metadata that only the server writes.
const SERVER_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// Restores what a write must not change: the status for a write to the object, everything but status and metadata for
/// a write to the status, and in both cases what only the server writes.
fn keep_what_is_not_written(target: &Target, old: &Value, new: &mut Value) {
    let kind = target.kind;
    let kept = |name: &str| old.get(name).cloned();
    match target.subresource.as_deref() {
        Some("status") => {
            let status = fields_of(new).remove("status");
            let metadata = fields_of(new).remove("metadata");
            let mut whole = old.clone();
            let fields = fields_of(&mut whole);
            put_back(fields, "status", status);
            fields.insert("metadata".to_owned(), metadata.unwrap_or_default());
            *new = whole;
            if kind.is_pod() {
                let owners = old.pointer("/metadata/ownerReferences").cloned();
                put_back(metadata_of(new), "ownerReferences", owners);
                pods::keep_status_fields(old, new);
            }
        }
        _ if kind.status => put_back(fields_of(new), "status", kept("status")),
        _ => {}
    }
    let fields = fields_of(new);
    put_back(fields, "apiVersion", kept("apiVersion"));
    put_back(fields, "kind", kept("kind"));
    let metadata = metadata_of(new);
    for name in SERVER_METADATA {
        let value = old.get("metadata").and_then(|m| m.get(name)).cloned();
        put_back(metadata, name, value);
    }
}

fn put_back(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
}

fn same_but_for_the_version(old: &Value, new: &Value) -> bool {
    let others = |object: &Value| {
        let mut object = object.clone();
        metadata_of(&mut object).remove("resourceVersion");
        object
    };
    old == new || others(old) == others(new)
}

/// Removes empty lists and nulls, which are not stored in pods and nodes.
fn drop_empty_lists(kind: &Kind, object: &mut Value) {
    fn drop_in(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|name, value| {
                    let empty = value.as_array().is_some_and(Vec::is_empty);
                    !value.is_null() && (!empty || name == "containers")
                });
                map.values_mut().for_each(drop_in);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_in),
            _ => {}
        }
    }
    if kind.group.is_empty() && matches!(kind.plural, "pods" | "nodes") {
        for field in ["spec", "status"] {
            object.get_mut(field).into_iter().for_each(drop_in);
        }
    }
}

/// The string at a JSON pointer, or an empty one.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The fields of an object; any other value is replaced by an empty object first.
pub(crate) fn fields_of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    match object {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The object's `metadata`.
pub(crate) fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    fields_of(fields_of(object).entry("metadata").or_insert(Value::Null))
}
