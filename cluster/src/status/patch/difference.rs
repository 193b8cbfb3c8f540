//! Two statuses, and the strategic-merge patch from one to the other.

use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// What of `status` has to be sent; `None` if nothing.
///
/// Compared is what goes over the wire, so that a time's fraction of a second is no change.
pub(super) fn difference(before: &PodStatus, after: &PodStatus) -> Option<Map<String, Value>> {
    let (before, mut after) = (fields(before), fields(after));
    let mut changes = Map::new();
    for (name, had) in &before {
        match after.remove(name) {
            None => {
                changes.insert(name.clone(), Value::Null);
            }
            Some(now) if now != *had => {
                changes.insert(name.clone(), change(name, had, now));
            }
            Some(_) => {}
        }
    }
    let nothing = Value::Array(Vec::new());
    changes.extend(after.into_iter().map(|(name, now)| {
        let news = change(&name, &nothing, now);
        (name, news)
    }));
    if changes.is_empty() { None } else { Some(changes) }
}

/// A field of the status is changed: by key where the API merges the list, else as a whole.
fn change(name: &str, had: &Value, now: Value) -> Value {
    match (name, had, now) {
        ("conditions", Value::Array(had), Value::Array(now)) => {
            Value::Array(now.into_iter().filter_map(|now| condition(had, now)).collect())
        }
        ("podIPs" | "hostIPs", Value::Array(had), Value::Array(now)) if !had.is_empty() => {
            let replace = std::iter::once(json!({ "$patch": "replace" }));
            Value::Array(replace.chain(now).collect())
        }
        (_, _, now) => now,
    }
}

/// A condition's changed fields with its type, which is the key.
fn condition(all: &[Value], now: Value) -> Option<Value> {
    let Some(Value::Object(had)) = all.iter().find(|had| had["type"] == now["type"]) else {
        return Some(now);
    };
    let Value::Object(now) = now else { return None };
    if *had == now {
        return None;
    }
    let gone =
        had.keys().filter(|key| !now.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut changes: Map<String, Value> = gone.collect();
    for (key, value) in now {
        if key == "type" || had.get(&key) != Some(&value) {
            changes.insert(key, value);
        }
    }
    Some(Value::Object(changes))
}

/// The status as it goes over the wire. A status always can be written so.
fn fields(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(mut fields)) => {
            drop_empty(&mut fields);
            fields
        }
        _ => Map::new(),
    }
}

/// The API server leaves out what is empty, so an empty text or list is an absent one. A container's
/// states it never leaves out: there `{}` is none, while within them an empty `running` says much.
fn drop_empty(fields: &mut Map<String, Value>) {
    fields.retain(|name, value| {
        drop_empty_in(value);
        match value {
            Value::Object(state) if matches!(name.as_str(), "state" | "lastState") => {
                !state.is_empty()
            }
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            _ => true,
        }
    });
}

pub(super) fn drop_empty_in(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_empty(fields),
        Value::Array(list) => list.iter_mut().for_each(drop_empty_in),
        _ => {}
    }
}
