//! The strategic-merge patch from one status to another.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value, json};

/// Returns the fields of `status` to send; `None` if there are none.
///
/// Compares the serialized form, in which a time's fraction of a second is no change.
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

/// Whether `patch` changes back what is in `found` otherwise than it was `written`. It also changes what follows from
/// others' fields: `Ready` from readiness gates.
pub(in crate::status) fn undoes(patch: &Value, written: &Pod, found: &Pod) -> bool {
    let of = |pod: &Pod| pod.status.as_ref().map(fields).unwrap_or_default();
    let (written, found) = (of(written), of(found));
    let changes = patch["status"].as_object().into_iter().flatten();
    changes.into_iter().any(|(name, change)| match (name.as_str(), change) {
        ("conditions", Value::Array(changed)) => changed.iter().any(|one| {
            let of = |all: &Map<String, Value>| {
                let all = all.get("conditions").and_then(Value::as_array);
                all.and_then(|all| all.iter().find(|has| has["type"] == one["type"])).cloned()
            };
            of(&written) != of(&found)
        }),
        _ => written.get(name) != found.get(name),
    })
}

/// The change of one field: by key if the API merges the list, otherwise as a whole.
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

/// The changed fields of a condition, with its type, which is the key.
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

/// The serialized status. Serializing a status cannot fail.
fn fields(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(mut fields)) => {
            drop_empty(&mut fields);
            fields
        }
        _ => Map::new(),
    }
}

/// Removes what is empty. The API server omits empty texts and lists, so they equal absent ones. It never
/// omits a container's states: an empty state is none, but an empty `running` in it has a meaning.
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
