//! `env[]` and `envFrom[]` of a container.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::FieldCheck;

use super::volume::{VolumeKind, Volumes};
use super::{field_ref, names, rules};

const RULE: &str = "write printable ASCII characters without `=`";

pub(super) fn all(check: &mut FieldCheck<'_>, container: &api::Container, volumes: &Volumes<'_>) {
    check.each("env", container.env.iter().flatten(), |check, env| {
        if env.name.is_empty() {
            check.fail_at("name", format!("is missing: {RULE}"));
        } else if !names::is_variable(&env.name) {
            // Not quoted: with `name: PASSWORD=…` the name includes the value.
            check.fail_at("name", format!("is no variable name: {RULE}"));
        }
        let value = env.value.as_deref().unwrap_or_default();
        if value.contains('\0') {
            check.fail_at("value", "has a zero byte in it: remove it");
        }
        let Some(from) = &env.value_from else { return };
        if !value.is_empty() {
            check.fail("has `value` and `valueFrom`: remove one of them");
        }
        check.key("valueFrom", |check| source(check, from, volumes));
    });
    if container.env_from.as_ref().is_some_and(|list| !list.is_empty()) {
        check.fail_at("envFrom", rules::NEEDS_API_SERVER);
    }
}

fn source(check: &mut FieldCheck<'_>, from: &api::EnvVarSource, volumes: &Volumes<'_>) {
    let api = [
        ("configMapKeyRef", from.config_map_key_ref.is_some()),
        ("secretKeyRef", from.secret_key_ref.is_some()),
    ];
    for (key, _) in api.iter().filter(|(_, set)| *set) {
        check.fail_at(key, rules::NEEDS_API_SERVER);
    }
    let own =
        [from.field_ref.is_some(), from.resource_field_ref.is_some(), from.file_key_ref.is_some()];
    let count = own.iter().chain(api.iter().map(|(_, set)| set)).filter(|set| **set).count();
    if count != 1 {
        check.fail("needs exactly one of fieldRef, resourceFieldRef and fileKeyRef");
    }
    if let Some(field) = &from.field_ref {
        check.key("fieldRef", |check| field_ref::of_pod(check, field, &field_ref::VARIABLES));
    }
    if let Some(field) = &from.resource_field_ref {
        check.key("resourceFieldRef", |check| field_ref::of_resources(check, field));
    }
    if let Some(file) = &from.file_key_ref {
        check.key("fileKeyRef", |check| self::file(check, file, volumes));
    }
}

fn file(check: &mut FieldCheck<'_>, file: &api::FileKeySelector, volumes: &Volumes<'_>) {
    if !names::is_variable(&file.key) {
        check.fail_at("key", format!("is no variable name: {RULE}"));
    }
    match volumes.get(file.volume_name.as_str()) {
        Some(VolumeKind::EmptyDir) => {}
        Some(VolumeKind::Other) => check.fail_at("volumeName", "is no emptyDir volume: write one"),
        None => check.fail_at("volumeName", "is not a volume in spec.volumes"),
    }
    if file.path.is_empty() {
        check.fail_at("path", "is missing: write that of a file in the volume");
    } else if rules::leads_up(&file.path) {
        check.fail_at("path", "leads out of the volume: write a path without `..`");
    }
}
