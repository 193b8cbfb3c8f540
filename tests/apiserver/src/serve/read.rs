//! GETs of single objects, and lists.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Reply;
use crate::core::Core;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::store::{Key, Store};
use crate::target::{Query, Target};
use crate::write::fields_of;

pub(super) fn get(core: &Core, target: &Target) -> Result<Reply, Refusal> {
    let name = target.name.as_deref().unwrap_or_default();
    if !matches!(target.subresource.as_deref(), None | Some("status" | "scale")) {
        return Err(Refusal::no_such_path());
    }
    let key = Key::new(target.kind, target.namespace.as_deref(), name);
    let object = core.store.get(&key).ok_or_else(|| Refusal::not_found(target.kind, name))?;
    Ok(Reply::Object(200, Arc::clone(object)))
}

pub(super) fn list(
    core: &Core,
    target: &Target,
    query: &Query,
    stale: Option<u64>,
) -> Result<Reply, Refusal> {
    let selector = Selector::of(target, query)?;
    let (asked, after) = wanted(core, query)?;
    let past = match stale.or(asked) {
        Some(version) if version < core.store.version() => {
            let expired = || Refusal::expired(version, core.store.compacted());
            Some(core.store.at(version).ok_or_else(expired)?)
        }
        _ => None,
    };
    let store = past.as_ref().unwrap_or(&core.store);
    Ok(Reply::Object(200, Arc::new(page(store, target, query, &selector, after.as_ref()))))
}

/// The version that the list must show, if a certain one is required, and the object after which it continues.
fn wanted(core: &Core, query: &Query) -> Result<(Option<u64>, Option<Place>), Refusal> {
    if let Some(token) = query.get("continue") {
        let place = Place::of_token(token);
        let (version, place) =
            place.ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
        if version < core.store.compacted() {
            let message = "The provided continue parameter is too old to display a consistent \
                           list result.";
            return Err(Refusal::new(410, "Expired", message));
        }
        return Ok((Some(version), Some(place)));
    }
    let Some(version) = query.number("resourceVersion").filter(|version| *version > 0) else {
        return Ok((None, None));
    };
    if version > core.store.version() {
        return Err(Refusal::from_the_future(version, core.store.version()));
    }
    let exact = query.get("resourceVersionMatch") == Some("Exact");
    if exact && version < core.store.compacted() {
        return Err(Refusal::expired(version, core.store.compacted()));
    }
    Ok((exact.then_some(version), None))
}

/// The position at which a page ended.
struct Place {
    namespace: String,
    name: String,
}

impl Place {
    fn token(key: &Key, version: u64) -> String {
        format!("{version}:{}:{}", key.namespace, key.name)
    }

    fn of_token(token: &str) -> Option<(u64, Self)> {
        let mut parts = token.splitn(3, ':');
        let version = parts.next()?.parse().ok()?;
        let (namespace, name) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        Some((version, Self { namespace, name }))
    }
}

fn page(
    store: &Store,
    target: &Target,
    query: &Query,
    selector: &Selector,
    after: Option<&Place>,
) -> Value {
    let limit = query.number("limit").filter(|limit| *limit > 0);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let mut found = store.list(target.kind, selector).filter(|(key, _)| {
        after.is_none_or(|place| (&key.namespace, &key.name) > (&place.namespace, &place.name))
    });
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in found.by_ref().take(limit) {
        items.push(without_type(object));
        last = Some(key);
    }
    let left = found.count();
    let mut metadata = json!({"resourceVersion": store.version().to_string()});
    if let Some(key) = last.filter(|_| left > 0) {
        let fields = fields_of(&mut metadata);
        fields.insert("continue".to_owned(), json!(Place::token(key, store.version())));
        if selector.is_everything() {
            fields.insert("remainingItemCount".to_owned(), json!(left));
        }
    }
    json!({
        "kind": format!("{}List", target.kind.kind),
        "apiVersion": target.kind.api_version(),
        "metadata": metadata,
        "items": items,
    })
}

/// Reduces an object or a list to its metadata, if the client wants only that.
pub(super) fn shown(reply: Reply, metadata_only: bool) -> Reply {
    match reply {
        Reply::Object(code, object) if metadata_only => {
            let shown = match object.get("items").and_then(Value::as_array) {
                Some(items) => json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                    "items": items.iter().map(metadata_of).collect::<Vec<_>>(),
                }),
                None => metadata_of(&object),
            };
            Reply::Object(code, Arc::new(shown))
        }
        other => other,
    }
}

/// `PartialObjectMetadata` of an object.
pub(super) fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// Removes the kind and version, which items of a list do not have.
pub(super) fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    let fields = fields_of(&mut object);
    fields.remove("kind");
    fields.remove("apiVersion");
    object
}
