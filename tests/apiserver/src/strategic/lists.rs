//! Lists in a strategic merge patch.

use serde_json::{Map, Value};

use super::schema::{Merging, merging};
use super::{DIRECTIVE, fresh, merge_map};
use crate::kinds::Kind;
use crate::refusal::Refusal;

/// Merges the patch's list into the existing one.
pub(super) fn merged(
    kind: &Kind,
    path: &str,
    original: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, Refusal> {
    match merging(kind, path) {
        Merging::Replace => Ok(patch.iter().filter_map(fresh).collect()),
        Merging::Union => {
            let mut union = original.to_vec();
            for value in patch {
                if !union.contains(value) {
                    union.push(value.clone());
                }
            }
            Ok(arranged(union, original, patch, None))
        }
        Merging::By(key) => by_key(kind, path, original, patch, key),
    }
}

/// Applies `$deleteFromPrimitiveList`: removes primitive values from a list.
pub(super) fn delete_from(original: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let (Some(Value::Array(list)), Value::Array(gone)) = (original.get_mut(field), gone) {
        list.retain(|value| !gone.contains(value));
    }
}

/// Applies `$setElementOrder`: merges the list of that name and puts it into the given order.
pub(super) fn order(
    kind: &Kind,
    path: &str,
    original: &mut Map<String, Value>,
    field: &str,
    patch: Option<&Value>,
    order: &Value,
) -> Result<(), Refusal> {
    let format = || Refusal::bad_request("invalid patch format of setElementOrder list");
    let order = order.as_array().ok_or_else(format)?;
    let key = match merging(kind, path) {
        Merging::By(key) => Some(key),
        Merging::Union | Merging::Replace => None,
    };
    let before = match original.get(field) {
        Some(Value::Array(list)) => list.clone(),
        _ => Vec::new(),
    };
    let merged = match patch {
        Some(Value::Array(patch)) => {
            let plain = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
            if plain.clone().any(|item| index(order, item, key).is_none()) {
                let message = "The order in patch list doesn't match $setElementOrder list";
                return Err(Refusal::broken(message));
            }
            self::merged(kind, path, &before, patch)?
        }
        Some(Value::Null) => {
            original.remove(field);
            return Ok(());
        }
        Some(_) => return Err(format()),
        None if original.contains_key(field) => before.clone(),
        None => return Ok(()),
    };
    original.insert(field.to_owned(), Value::Array(arranged(merged, &before, order, key)));
    Ok(())
}

fn by_key(
    kind: &Kind,
    path: &str,
    original: &[Value],
    patch: &[Value],
    key: &'static str,
) -> Result<Vec<Value>, Refusal> {
    let no_key = |item: &Value| {
        Refusal::broken(format!("map: {item} does not contain declared merge key: {key}"))
    };
    let mut list = original.to_vec();
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE).and_then(Value::as_str) {
            Some("delete") => {
                let gone = item.get(key).ok_or_else(|| no_key(item))?;
                list.retain(|old| old.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some(other) => {
                return Err(Refusal::broken(format!("unknown patch type: {other}")));
            }
            None => plain.push(item.clone()),
        }
    }
    if replace {
        return Ok(plain.iter().filter_map(fresh).collect());
    }
    for item in &plain {
        let value = item.get(key).ok_or_else(|| no_key(item))?;
        match (list.iter_mut().find(|old| old.get(key) == Some(value)), item) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_map(kind, path, old, new)?,
            _ => list.extend(fresh(item)),
        }
    }
    Ok(arranged(list, original, &plain, Some(key)))
}

/// Orders a merged list: items that the patch names in the patch's order; an item that only the server has goes before
/// the first item that followed it.
fn arranged(
    merged: Vec<Value>,
    before: &[Value],
    wanted: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| index(wanted, item, key).is_some());
    named.sort_by_key(|item| index(wanted, item, key));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (Some(other), Some(named)) => {
                match (index(before, other, key), index(before, named, key)) {
                    (Some(other), Some(named)) => other < named,
                    _ => false,
                }
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return arranged,
        };
        arranged.extend(if other_first { others.next() } else { named.next() });
    }
}

fn index(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    list.iter().position(|candidate| match key {
        Some(key) => candidate.get(key).is_some() && candidate.get(key) == item.get(key),
        None => candidate == item,
    })
}
