//! `metadata`: ObjectMeta.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use winddown_yaml::{FieldCheck, Shortened, names};

use super::{annotations, rules};
use crate::identity;

pub(super) fn all(check: &mut FieldCheck<'_>, pod: &api::Pod, node_name: &str) {
    let meta = &pod.metadata;
    name(check, meta.name.as_deref().unwrap_or_default(), node_name);
    if let Some(namespace) = meta.namespace.as_deref().filter(|name| !name.is_empty()) {
        rules::label(check, "namespace", namespace, "namespace");
    }
    uid(check, meta.uid.as_deref().unwrap_or_default());
    rules::at_least(check, "generation", meta.generation, 0);
    if meta.deletion_timestamp.is_some() {
        check.fail_at("deletionTimestamp", "is for a pod that is being deleted: remove it");
    }
    labels(check, "labels", meta.labels.as_ref());
    annotations::all(check, pod);
    owners(check, meta.owner_references.as_deref().unwrap_or_default());
    finalizers(check, meta.finalizers.as_deref().unwrap_or_default());
    check.each("managedFields", meta.managed_fields.iter().flatten(), managed);
}

fn name(check: &mut FieldCheck<'_>, name: &str, node_name: &str) {
    if name.is_empty() {
        return check.fail_at("name", "is missing: a pod from a file needs a name");
    }
    // Only the whole name has to be valid: `web-` and the node's name are.
    let full = identity::full_name(name, node_name);
    if full.len() > 253 {
        let what = format!(
            "with the node's name `{}` behind it, it is {} characters long: write a shorter one, 253 \
             is the most",
            Shortened(node_name),
            full.len()
        );
        check.fail_at("name", what);
    } else if !names::is_dns_subdomain(&identity::full_name("a", node_name)) {
        let what = format!(
            "the node's name `{}`, with which it would end, is not one: set `nodeName` in the configuration, or a \
             host name (`hostnamectl set-hostname NAME`)",
            Shortened(node_name)
        );
        check.fail_at("name", what);
    } else if !names::is_dns_subdomain(&full) {
        let what = format!("`{}` is not a pod name: {}", Shortened(name), rules::SUBDOMAIN);
        check.fail_at("name", what);
    }
}

/// The UID becomes the name of a directory.
fn uid(check: &mut FieldCheck<'_>, uid: &str) {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if uid.len() > 64 || !uid.bytes().all(valid) {
        let what = format!(
            "`{}` is no UID: remove it, or write letters, digits and `-`, at most 64",
            Shortened(uid)
        );
        check.fail_at("uid", what);
    }
}

/// Reports wrong keys and values of labels, or of a selector of labels.
pub(super) fn labels(
    check: &mut FieldCheck<'_>,
    key: &str,
    labels: Option<&BTreeMap<String, String>>,
) {
    check.key(key, |check| {
        for (name, value) in labels.into_iter().flatten() {
            if !names::is_qualified_name(name) {
                check.fail_at(name, rules::KEY);
            }
            rules::label_value(check, name, value);
        }
    });
}

fn owners(check: &mut FieldCheck<'_>, owners: &[OwnerReference]) {
    check.each("ownerReferences", owners, |check, owner| {
        let version = owner.api_version.split_once('/').map_or(&*owner.api_version, |(_, v)| v);
        if version.is_empty() || version.contains('/') {
            let what = format!(
                "`{}` is no version: write, for example, v1 or apps/v1",
                Shortened(&owner.api_version)
            );
            check.fail_at("apiVersion", what);
        }
        for (key, text) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
            if text.is_empty() {
                check.fail_at(key, "is missing: write that of the owner");
            }
        }
        if owner.api_version == "v1" && owner.kind == "Event" {
            check.fail_at("kind", "an Event owns nothing: remove the entry");
        }
    });
    if owners.iter().filter(|owner| owner.controller == Some(true)).count() > 1 {
        check.fail_at("ownerReferences", "only one owner can have `controller: true`");
    }
}

fn finalizers(check: &mut FieldCheck<'_>, finalizers: &[String]) {
    const OF_KUBERNETES: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    check.key("finalizers", |check| {
        for (index, finalizer) in finalizers.iter().enumerate() {
            let known = finalizer.contains('/') || OF_KUBERNETES.contains(&finalizer.as_str());
            if !known || !names::is_qualified_name(finalizer) {
                let what = format!(
                    "`{}` is no finalizer: write, for example, example.com/name, or remove it",
                    Shortened(finalizer)
                );
                check.index(index, |check| check.fail(what));
            }
        }
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        if has("orphan") && has("foregroundDeletion") {
            check.fail("`orphan` and `foregroundDeletion` contradict each other: remove one");
        }
    });
}

fn managed(check: &mut FieldCheck<'_>, entry: &ManagedFieldsEntry) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    rules::word(check, "operation", &text(&entry.operation), &["Apply", "Update"]);
    rules::word(check, "fieldsType", &text(&entry.fields_type), &["", "FieldsV1"]);
    let manager = text(&entry.manager);
    if manager.len() > 128 || manager.chars().any(char::is_control) {
        check.fail_at("manager", "is not at most 128 printable characters: shorten or remove it");
    }
    if text(&entry.subresource).len() > 256 {
        check.fail_at("subresource", "has more than 256 characters: shorten or remove it");
    }
}
