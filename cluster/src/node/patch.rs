//! Patches for the difference between the Node object and its desired state.
//!
//! Each is a strategic-merge patch against the last known node. It names the node's UID, so that it never
//! hits another node of the same name, and it touches only what this agent owns: labels, annotations,
//! conditions and resources of others stay, and keys that are no longer managed are removed. Taints are set when the
//! node is registered, and then left to those who take them off.
//!
//! There is one patch for each kind of permission. An API server may refuse a node's own labels
//! (the NodeRestriction admission plugin does), and must accept its status nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Map, Value, json};
use winddown_api_client::equality::same_amount;

use super::conditions::{agree, find, of, stamp};
use super::desired::NodeFacts;
use super::managed_keys::{LAST_APPLIED, ManagedKeys, address_key, is_reserved};

/// The patch of labels and annotations.
pub(super) fn metadata(facts: &NodeFacts, node: &Node) -> Option<Value> {
    let (claims, mut record) = (facts.claims(), ManagedKeys::of(node));
    let labels = texts(&facts.labels, node.metadata.labels.as_ref(), &record.labels);
    let mut annotations =
        texts(&facts.annotations, node.metadata.annotations.as_ref(), &record.annotations);
    annotations.retain(|name, _| !is_reserved(name));
    let unrecorded = record.labels != claims.labels || record.annotations != claims.annotations;
    if labels.is_empty() && annotations.is_empty() && !unrecorded {
        return None;
    }
    if unrecorded {
        (record.labels, record.annotations) = (claims.labels, claims.annotations);
        annotations.insert(LAST_APPLIED.to_owned(), record.to_text().into());
    }
    let mut metadata = json!({ "uid": node.metadata.uid });
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    Some(json!({ "metadata": metadata }))
}

/// The patch of the status, with all conditions. With `heartbeat` there always is one; conditions alone need none.
pub(super) fn status(
    facts: &NodeFacts,
    wanted: &[NodeCondition],
    node: &Node,
    now: &Time,
    heartbeat: bool,
) -> Option<Value> {
    let none = NodeStatus::default();
    let has = node.status.as_ref().unwrap_or(&none);
    let (claims, mut record) = (facts.claims(), ManagedKeys::of(node));

    let mut status = differences(facts, has, &record);
    let capacity = quantities(&facts.capacity, has.capacity.as_ref(), &record.capacity);
    insert_unless_empty(&mut status, "capacity", capacity);
    let allocatable = quantities(&facts.allocatable, has.allocatable.as_ref(), &record.allocatable);
    insert_unless_empty(&mut status, "allocatable", allocatable);
    // Without addresses of its own, the Node object keeps those that it has.
    let addresses = Some(claims.addresses).filter(|own| !own.is_empty());
    let addresses = addresses.unwrap_or_else(|| record.addresses.clone());
    let unrecorded = record.capacity != claims.capacity
        || record.allocatable != claims.allocatable
        || record.addresses != addresses;
    if status.is_empty() && !unrecorded && !heartbeat {
        return None;
    }
    // Sent only with other changes: API servers before 1.35 drop them, so they would always differ.
    if has.declared_features.as_deref().unwrap_or_default() != facts.declared_features {
        status.insert("declaredFeatures".to_owned(), to_value(&facts.declared_features));
    }
    let mut patch = conditions(facts, wanted, node, now, true)?;
    for (field, value) in status {
        patch["status"][field] = value;
    }
    if unrecorded {
        (record.capacity, record.allocatable) = (claims.capacity, claims.allocatable);
        (record.addresses, record.conditions) = (addresses, claims.conditions);
        patch["metadata"]["annotations"] = json!({ LAST_APPLIED: record.to_text() });
    }
    Some(patch)
}

/// The patch of the conditions alone. With `heartbeat` there always is one.
pub(super) fn conditions(
    facts: &NodeFacts,
    wanted: &[NodeCondition],
    node: &Node,
    now: &Time,
    heartbeat: bool,
) -> Option<Value> {
    let has = of(node);
    let (claims, mut record) = (facts.claims(), ManagedKeys::of(node));
    let dropped = dropped(&record, wanted, has);
    let unrecorded = record.conditions != claims.conditions;
    if agree(wanted, has) && dropped.is_empty() && !unrecorded && !heartbeat {
        return None;
    }
    let stamped = stamp(wanted.to_vec(), has, now).into_iter().map(|one| to_value(&one));
    let all: Vec<_> = stamped.chain(dropped).collect();
    let mut patch =
        json!({ "metadata": { "uid": node.metadata.uid }, "status": { "conditions": all } });
    if unrecorded {
        record.conditions = claims.conditions;
        patch["metadata"]["annotations"] = json!({ LAST_APPLIED: record.to_text() });
    }
    Some(patch)
}

/// Takes off the conditions of the record that are not wanted any more.
fn dropped(record: &ManagedKeys, wanted: &[NodeCondition], has: &[NodeCondition]) -> Vec<Value> {
    let is_dropped = |kind: &&String| find(has, kind).is_some() && find(wanted, kind).is_none();
    let dropped = record.conditions.iter().filter(is_dropped);
    dropped.map(|kind| json!({ "type": kind, "$patch": "delete" })).collect()
}

/// The differences in fields of the status that this agent owns as a whole.
fn differences(facts: &NodeFacts, has: &NodeStatus, record: &ManagedKeys) -> Map<String, Value> {
    let mut status = Map::new();
    let there = has.addresses.as_deref().unwrap_or_default();
    if let Some(addresses) = addresses(&facts.addresses, there, &record.addresses) {
        // Merged by type, a second address of one type would replace the first.
        let addresses = addresses.into_iter().map(to_value);
        let replace = std::iter::once(json!({ "$patch": "replace" }));
        status.insert("addresses".to_owned(), addresses.chain(replace).collect());
    }
    if has.node_info.as_ref() != Some(&facts.info) {
        status.insert("nodeInfo".to_owned(), to_value(&facts.info));
    }
    // The API server shows a port of 0 if there is none.
    let port = facts.port.unwrap_or_default();
    let endpoints = has.daemon_endpoints.as_ref();
    let known = endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    if known.map_or(0, |known| known.port) != port {
        status.insert("daemonEndpoints".to_owned(), json!({ "kubeletEndpoint": { "Port": port } }));
    }
    if !facts.images.is_empty() && has.images.as_ref() != Some(&facts.images) {
        status.insert("images".to_owned(), to_value(&facts.images));
    }
    if facts.features.is_some() && has.features != facts.features {
        status.insert("features".to_owned(), to_value(&facts.features));
    }
    let handlers = &facts.runtime_handlers;
    if !handlers.is_empty() && has.runtime_handlers.as_ref() != Some(handlers) {
        status.insert("runtimeHandlers".to_owned(), to_value(handlers));
    }
    status
}

/// The addresses that the Node object should have, if it has others: `ours`, and those that others added, as a cloud's
/// controller does, in whatever order. Until it is `recorded` which were ours, all were.
fn addresses<'a>(
    ours: &'a [NodeAddress],
    has: &'a [NodeAddress],
    recorded: &BTreeSet<String>,
) -> Option<Vec<&'a NodeAddress>> {
    let by_type = |mut all: Vec<&'a NodeAddress>| {
        all.sort_by_key(|one| &one.type_);
        all
    };
    let (own, others): (Vec<_>, Vec<_>) = has.iter().partition(|one| ours.contains(one));
    let was_ours = |one: &&NodeAddress| recorded.is_empty() || recorded.contains(&address_key(one));
    let (former, theirs): (Vec<_>, Vec<_>) = others.into_iter().partition(was_ours);
    let is_same = former.is_empty() && by_type(own) == by_type(ours.iter().collect());
    (!ours.is_empty() && !is_same).then(|| ours.iter().chain(theirs).collect())
}

/// The changes after which `has` contains all of `ours`, and nothing else of `managed`.
fn texts(
    ours: &BTreeMap<String, String>,
    has: Option<&BTreeMap<String, String>>,
    managed: &BTreeSet<String>,
) -> Map<String, Value> {
    changes(ours, has, managed, |ours, has| ours == has, |text| text.as_str().into())
}

/// The same for amounts, which are compared by value: the server writes `1` for `1000m`.
fn quantities(
    ours: &BTreeMap<String, resource::Quantity>,
    has: Option<&BTreeMap<String, resource::Quantity>>,
    managed: &BTreeSet<String>,
) -> Map<String, Value> {
    changes(ours, has, managed, same_amount, |amount| amount.0.as_str().into())
}

fn changes<V>(
    ours: &BTreeMap<String, V>,
    has: Option<&BTreeMap<String, V>>,
    managed: &BTreeSet<String>,
    same: impl Fn(&V, &V) -> bool,
    value: impl Fn(&V) -> Value,
) -> Map<String, Value> {
    let has_same =
        |key: &String, want: &V| has.and_then(|has| has.get(key)).is_some_and(|is| same(want, is));
    let set = ours.iter().filter(|(key, want)| !has_same(key, want));
    let set = set.map(|(key, want)| (key.clone(), value(want)));
    let dropped = managed
        .iter()
        .filter(|key| !ours.contains_key(*key))
        .filter(|key| has.is_some_and(|has| has.contains_key(*key)))
        .map(|key| (key.clone(), Value::Null));
    set.chain(dropped).collect()
}

fn insert_unless_empty(into: &mut Map<String, Value>, key: &str, fields: Map<String, Value>) {
    if !fields.is_empty() {
        into.insert(key.to_owned(), fields.into());
    }
}

/// API types consist of texts, numbers and lists, so that serializing one cannot fail.
fn to_value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
