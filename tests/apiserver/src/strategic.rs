//! Patches: strategic merge patches with their directives, and plain JSON merge patches.

mod lists;
mod schema;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::kinds::Kind;
use crate::refusal::Refusal;

/// Merges a strategic merge patch into an object of this kind.
pub(crate) fn apply(kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let Value::Object(patch) = patch else {
        return Err(Refusal::bad_request("a strategic merge patch must be an object"));
    };
    let Value::Object(object) = object else {
        return Err(Refusal::bad_request("only an object can be patched"));
    };
    merge_map(kind, "", object, patch)
}

/// Merges a JSON merge patch (RFC 7386) into an object.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Value::Object(object) = object {
        for (name, value) in patch {
            if value.is_null() {
                object.remove(name);
            } else {
                merge(object.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

fn merge_map(
    kind: &Kind,
    path: &str,
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), Refusal> {
    match patch.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
        Some("replace") => {
            *original = patch
                .iter()
                .filter(|(name, _)| *name != DIRECTIVE)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            return Ok(());
        }
        Some("delete") => {
            original.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => {
            return Err(Refusal::broken(format!("unknown patch type: {other}")));
        }
    }
    if let Some(retained) = patch.get(RETAIN) {
        retain(original, patch, retained)?;
    }
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(ORDER) {
            let at = join(path, field);
            lists::order(kind, &at, original, field, patch.get(field), value)?;
        }
    }
    for (name, value) in patch {
        let ordered = patch.contains_key(&format!("{ORDER}{name}"));
        if name == DIRECTIVE || name == RETAIN || name.starts_with(ORDER) || ordered {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            lists::delete_from(original, field, value);
            continue;
        }
        merge_field(kind, &join(path, name), original, name, value)?;
    }
    Ok(())
}

fn merge_field(
    kind: &Kind,
    path: &str,
    original: &mut Map<String, Value>,
    name: &str,
    value: &Value,
) -> Result<(), Refusal> {
    match (original.get_mut(name), value) {
        (_, Value::Null) => {
            original.remove(name);
        }
        (Some(Value::Object(old)), Value::Object(new)) => merge_map(kind, path, old, new)?,
        (Some(Value::Array(old)), Value::Array(new)) => {
            let merged = lists::merged(kind, path, old, new)?;
            original.insert(name.to_owned(), Value::Array(merged));
        }
        (_, new) => match fresh(new) {
            Some(fresh) => {
                original.insert(name.to_owned(), fresh);
            }
            None => {
                original.remove(name);
            }
        },
    }
    Ok(())
}

/// A new value, without nulls and without items that carry a directive. `None` if the value itself carries one.
fn fresh(value: &Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, value)| {
                !value.is_null()
                    && *name != RETAIN
                    && !name.starts_with(ORDER)
                    && !name.starts_with(DELETE_FROM)
            });
            Some(kept.filter_map(|(name, value)| Some((name.clone(), fresh(value)?))).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(fresh).collect()),
        other => Some(other.clone()),
    }
}

/// Applies `$retainKeys`: keys that it does not list are removed.
fn retain(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    retained: &Value,
) -> Result<(), Refusal> {
    let format = || Refusal::bad_request("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(format)?;
    let listed = |name: &str| retained.iter().any(|r| r.as_str() == Some(name));
    let stray = patch
        .iter()
        .any(|(name, value)| !value.is_null() && !name.starts_with('$') && !listed(name));
    if stray {
        return Err(format());
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
