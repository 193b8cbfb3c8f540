//! Validation of events, leases and nodes: what the real server refuses and an agent could get wrong.

use serde_json::Value;

use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::write::text;

/// The field, the kind of mistake, and the message.
type Mistake = (String, &'static str, String);

const INVALID: &str = "FieldValueInvalid";
const REQUIRED: &str = "FieldValueRequired";
const FORBIDDEN: &str = "FieldValueForbidden";
const DUPLICATE: &str = "FieldValueDuplicate";

/// Validates a new object.
pub(crate) fn check_created(kind: &Kind, name: &str, new: &Value) -> Result<(), Refusal> {
    refuse(
        kind,
        name,
        match (kind.group, kind.plural) {
            ("events.k8s.io", "events") => event(new),
            ("coordination.k8s.io", "leases") => lease(new),
            ("", "nodes") => node(new),
            _ => None,
        },
    )
}

/// Validates a change.
pub(crate) fn check_updated(
    kind: &Kind,
    name: &str,
    old: &Value,
    new: &Value,
) -> Result<(), Refusal> {
    refuse(
        kind,
        name,
        match (kind.group, kind.plural) {
            ("events.k8s.io", "events") => changed_event(old, new),
            ("coordination.k8s.io", "leases") => lease(new),
            ("", "nodes") => changed_node(old, new).or_else(|| node(new)),
            _ => None,
        },
    )
}

fn refuse(kind: &Kind, name: &str, mistake: Option<Mistake>) -> Result<(), Refusal> {
    match mistake {
        Some((field, reason, why)) => Err(Refusal::invalid(kind, name, &field, reason, &why)),
        None => Ok(()),
    }
}

fn event(new: &Value) -> Option<Mistake> {
    let required = [
        ("/eventTime", "eventTime"),
        ("/reportingController", "reportingController"),
        ("/reportingInstance", "reportingInstance"),
        ("/action", "action"),
        ("/reason", "reason"),
    ];
    for (pointer, field) in required {
        if text(new, pointer).is_empty() {
            return Some((field.to_owned(), REQUIRED, String::new()));
        }
    }
    let limits = [
        ("/reportingInstance", "reportingInstance", 128),
        ("/action", "action", 128),
        ("/reason", "reason", 128),
        ("/note", "message", 1024),
    ];
    for (pointer, field, limit) in limits {
        if text(new, pointer).len() > limit {
            let why = format!("\"\": can have at most {limit} characters");
            return Some((field.to_owned(), INVALID, why));
        }
    }
    let kind = text(new, "/type");
    if !matches!(kind, "Normal" | "Warning") {
        return Some(("type".to_owned(), INVALID, format!("\"\": has invalid value: {kind}")));
    }
    let (own, regarding) = (text(new, "/metadata/namespace"), text(new, "/regarding/namespace"));
    let cluster_wide = regarding.is_empty() && matches!(own, "default" | "kube-system");
    if own != regarding && !cluster_wide {
        let why = format!("\"{regarding}\": does not match event.namespace");
        return Some(("involvedObject.namespace".to_owned(), INVALID, why));
    }
    series(new)
}

fn series(event: &Value) -> Option<Mistake> {
    let series = event.get("series").filter(|series| !series.is_null())?;
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        return Some(("series.count".to_owned(), INVALID, "\"\": should be at least 2".to_owned()));
    }
    if text(series, "/lastObservedTime").is_empty() {
        return Some(("series.lastObservedTime".to_owned(), REQUIRED, String::new()));
    }
    None
}

/// Only the series of an event may change.
fn changed_event(old: &Value, new: &Value) -> Option<Mistake> {
    let fixed = [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, named) in fixed {
        if old.get(field) != new.get(field) {
            let value = new.get(field).unwrap_or(&Value::Null);
            return Some((named.to_owned(), INVALID, format!("{value}: field is immutable")));
        }
    }
    if old.get("series") == new.get("series") { None } else { series(new) }
}

fn lease(new: &Value) -> Option<Mistake> {
    let number = |pointer: &str| new.pointer(pointer).and_then(Value::as_i64);
    if let Some(seconds) = number("/spec/leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let why = format!("{seconds}: must be greater than 0");
        return Some(("spec.leaseDurationSeconds".to_owned(), INVALID, why));
    }
    if number("/spec/leaseTransitions").is_some_and(|count| count < 0) {
        let why = "must be greater than or equal to 0".to_owned();
        return Some(("spec.leaseTransitions".to_owned(), INVALID, why));
    }
    None
}

fn node(new: &Value) -> Option<Mistake> {
    let taints = items(new, "/spec/taints");
    for (i, taint) in taints.iter().enumerate() {
        let at = format!("metadata.taints[{i}]");
        if text(taint, "/key").is_empty() {
            return Some((format!("{at}.key"), REQUIRED, "name part must be non-empty".to_owned()));
        }
        if !matches!(text(taint, "/effect"), "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let supported = "\"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"";
            let why = format!("\"{}\": supported values: {supported}", text(taint, "/effect"));
            return Some((format!("{at}.effect"), "FieldValueNotSupported", why));
        }
        let same = |other: &Value| {
            other.get("key") == taint.get("key") && other.get("effect") == taint.get("effect")
        };
        if taints.iter().take(i).any(same) {
            let why = format!("{taint}: taints must be unique by key and effect pair");
            return Some((at, DUPLICATE, why));
        }
    }
    let addresses = items(new, "/status/addresses");
    for (i, address) in addresses.iter().enumerate() {
        if addresses.iter().take(i).any(|other| other == address) {
            return Some((format!("status.addresses[{i}]"), DUPLICATE, address.to_string()));
        }
    }
    None
}

fn changed_node(old: &Value, new: &Value) -> Option<Mistake> {
    let was = text(old, "/spec/providerID");
    if !was.is_empty() && was != text(new, "/spec/providerID") {
        let why = "node updates may not change providerID except from \"\" to valid".to_owned();
        return Some(("spec.providerID".to_owned(), FORBIDDEN, why));
    }
    let was = items(old, "/spec/podCIDRs");
    if !was.is_empty() && was != items(new, "/spec/podCIDRs") {
        let why = "node updates may not change podCIDR except from \"\" to valid".to_owned();
        return Some(("spec.podCIDRs".to_owned(), FORBIDDEN, why));
    }
    None
}

fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
