//! References of variables and files to fields of their pod.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::Quantity;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::rules;

/// The fields that a variable can show.
pub(super) const VARIABLES: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    // The old name of spec.nodeName.
    "spec.host",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields that a file can show.
pub(super) const FILES: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
];
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn of_pod(
    check: &mut FieldCheck<'_>,
    field: &api::ObjectFieldSelector,
    allowed: &[&str],
) {
    rules::word(check, "apiVersion", field.api_version.as_deref().unwrap_or("v1"), &["v1"]);
    let path = field.field_path.as_str();
    let entry = path.strip_suffix("']").and_then(|path| path.split_once("['"));
    let known = match entry {
        Some(("metadata.labels", key)) => names::is_qualified_name(key),
        Some(("metadata.annotations", key)) => names::is_qualified_name(&key.to_lowercase()),
        Some(_) => false,
        None => allowed.contains(&path),
    };
    if !known {
        let what = format!(
            "`{}` is no field that can be read here: write {}, metadata.labels['KEY'] or \
             metadata.annotations['KEY']",
            Shortened(path),
            allowed.join(", ")
        );
        check.fail_at("fieldPath", what);
    }
}

pub(super) fn of_resources(check: &mut FieldCheck<'_>, field: &api::ResourceFieldSelector) {
    let name =
        field.resource.split_once('.').filter(|(list, _)| ["limits", "requests"].contains(list));
    let name = name
        .map(|(_, name)| name)
        .filter(|name| RESOURCES.contains(name) || name.starts_with("hugepages-"));
    let Some(name) = name else {
        let what = format!(
            "`{}` is not known: write limits. or requests. and {} or hugepages-<size>",
            Shortened(&field.resource),
            RESOURCES.join(", ")
        );
        return check.fail_at("resource", what);
    };
    let Some(divisor) = &field.divisor else { return };
    let Ok(divisor) = divisor.0.parse::<Quantity>() else {
        return check.fail_at("divisor", "is no quantity: write, for example, 1 or 1Mi");
    };
    let allowed: &[&str] = if name == "cpu" { &["1m", "1"] } else { &DIVISORS };
    let zero = divisor == Quantity::default();
    if !zero && !allowed.contains(&divisor.to_string().as_str()) {
        let what = format!("is {divisor}: write {}", allowed.join(", "));
        check.fail_at("divisor", what);
    }
}
