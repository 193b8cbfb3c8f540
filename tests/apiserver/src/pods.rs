//! Rules for pods: defaults, and validation of new pods and changes.

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::write::{fields_of, text};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Gives a new pod its defaults and its first status.
pub(crate) fn prepare(pod: &mut Value) {
    let qos = qos_class(pod);
    let fields = fields_of(pod);
    fields.insert("status".to_owned(), json!({"phase": "Pending", "qosClass": qos}));
    let spec = fields_of(fields.entry("spec").or_insert(Value::Null));
    for (name, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
    ] {
        spec.entry(name).or_insert(value);
    }
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let container = fields_of(container);
            for (name, value) in [
                ("resources", json!({})),
                ("terminationMessagePath", json!("/dev/termination-log")),
                ("terminationMessagePolicy", json!("File")),
                ("imagePullPolicy", json!("IfNotPresent")),
            ] {
                container.entry(name).or_insert(value);
            }
        }
    }
}

/// Validates a new pod.
pub(crate) fn check_created(kind: &Kind, pod: &Value) -> Result<(), Refusal> {
    let name = text(pod, "/metadata/name");
    let refuse = |field: &str, reason: &str, why: &str| {
        Err(Refusal::invalid(kind, name, field, reason, why))
    };
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let Some(containers) = containers.filter(|all| !all.is_empty()) else {
        return refuse("spec.containers", "FieldValueRequired", "");
    };
    for (i, container) in containers.iter().enumerate() {
        if text(container, "/name").is_empty() {
            return refuse(&format!("spec.containers[{i}].name"), "FieldValueRequired", "");
        }
        if text(container, "/image").is_empty() {
            return refuse(&format!("spec.containers[{i}].image"), "FieldValueRequired", "");
        }
    }
    if let Some(value) = annotation(pod, MIRROR)
        && text(pod, "/spec/nodeName").is_empty()
    {
        let why = format!("\"{value}\": must set spec.nodeName if mirror pod annotation is set");
        let field = format!("metadata.annotations[{MIRROR}]");
        return refuse(&field, "FieldValueInvalid", &why);
    }
    Ok(())
}

/// Validates a change of a pod or of its status.
pub(crate) fn check_updated(
    kind: &Kind,
    subresource: Option<&str>,
    old: &Value,
    new: &Value,
) -> Result<(), Refusal> {
    let name = text(old, "/metadata/name");
    let refuse = |field: &str, why: &str| {
        Err(Refusal::invalid(kind, name, field, "FieldValueForbidden", why))
    };
    let field = format!("metadata.annotations[{MIRROR}]");
    match (annotation(old, MIRROR), annotation(new, MIRROR)) {
        (None, Some(_)) => return refuse(&field, "may not add mirror pod annotation"),
        (Some(was), is) if is != Some(was) => {
            return refuse(&field, "may not remove or update mirror pod annotation");
        }
        _ => {}
    }
    match subresource {
        Some("status") => check_status(kind, name, old, new),
        None => check_spec(kind, name, old, new),
        Some(_) => Ok(()),
    }
}

/// Keeps status fields that a write may leave out, and makes related fields consistent.
pub(crate) fn keep_status_fields(old: &Value, new: &mut Value) {
    let status = fields_of(fields_of(new).entry("status").or_insert(Value::Null));
    if let Some(qos) = old.pointer("/status/qosClass") {
        status.entry("qosClass").or_insert(qos.clone());
    }
    // If the two fields differ, the older one counts, because old nodes write only that.
    let first = status.get("podIPs").and_then(|all| all.pointer("/0/ip")).cloned();
    match (status.get("podIP").cloned(), first) {
        (None, Some(first)) => {
            status.insert("podIP".to_owned(), first);
        }
        (Some(address), first) if first.as_ref() != Some(&address) => {
            status.insert("podIPs".to_owned(), json!([{"ip": address}]));
        }
        _ => {}
    }
}

fn check_status(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    let (was, is) = (text(old, "/status/qosClass"), text(new, "/status/qosClass"));
    if !was.is_empty() && was != is {
        let field = "status.qosClass";
        let why = format!("\"{is}\": field is immutable");
        return Err(Refusal::invalid(kind, name, field, "FieldValueInvalid", &why));
    }
    for list in ["podIPs", "hostIPs"] {
        check_addresses(kind, name, new, list)?;
    }
    if let Some(first) = new.pointer("/status/hostIPs/0/ip")
        && Some(first) != new.pointer("/status/hostIP")
    {
        let why = format!("{first}: must be equal to `hostIP`");
        let field = "status.hostIPs[0].ip";
        return Err(Refusal::invalid(kind, name, field, "FieldValueInvalid", &why));
    }
    for (list, declared) in [
        ("containerStatuses", "/spec/containers"),
        ("initContainerStatuses", "/spec/initContainers"),
        // None runs again.
        ("ephemeralContainerStatuses", ""),
    ] {
        let statuses = format!("/status/{list}");
        for (i, before) in items(old, &statuses).iter().enumerate() {
            let Some(ended) = before.pointer("/state/terminated") else { continue };
            let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
            if should_restart(old, declared, text(before, "/name"), code) {
                continue;
            }
            let mut after = items(new, &statuses).iter();
            let after = after.find(|after| after.get("name") == before.get("name"));
            if after.is_some_and(|after| after.pointer("/state/terminated").is_none()) {
                let field = format!("status.{list}[{i}].state");
                let why = "may not be transitioned to non-terminated state";
                return Err(Refusal::invalid(kind, name, &field, "FieldValueForbidden", why));
            }
        }
    }
    Ok(())
}

/// Whether a container that exited with this code may run again, by its own restart policy or its pod's.
fn should_restart(pod: &Value, declared: &str, name: &str, code: i64) -> bool {
    let mut all = items(pod, declared).iter();
    let Some(container) = all.find(|one| text(one, "/name") == name) else { return false };
    let policy = match text(container, "/restartPolicy") {
        "" => text(pod, "/spec/restartPolicy"),
        own => own,
    };
    match policy {
        "OnFailure" => code != 0,
        policy => policy == "Always",
    }
}

/// Checks that there is at most one address of each family: a merged list easily has two.
fn check_addresses(kind: &Kind, name: &str, pod: &Value, list: &str) -> Result<(), Refusal> {
    let addresses = items(pod, &format!("/status/{list}"));
    let is_v6 = |address: &Value| text(address, "/ip").contains(':');
    let v6 = addresses.iter().filter(|address| is_v6(address)).count();
    if v6 <= 1 && addresses.len() - v6 <= 1 {
        return Ok(());
    }
    let shown = Value::from(addresses.to_vec());
    let why = format!("{shown}: may specify no more than one IP for each IP family");
    Err(Refusal::invalid(kind, name, &format!("status.{list}"), "FieldValueInvalid", &why))
}

/// Checks that the spec is unchanged, except for images, an earlier deadline and more tolerations.
fn check_spec(kind: &Kind, name: &str, old: &Value, new: &Value) -> Result<(), Refusal> {
    let invalid =
        |field: &str, why: &str| Err(Refusal::invalid(kind, name, field, "FieldValueInvalid", why));
    let deadline = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    let field = "spec.activeDeadlineSeconds";
    match (deadline(old), deadline(new)) {
        (Some(_), None) => {
            return invalid(field, "must not update from a positive integer to nil value");
        }
        (Some(was), Some(is)) if is > was => {
            return invalid(field, &format!("{is}: must be less than or equal to previous value"));
        }
        (_, Some(is)) if is < 0 => {
            return invalid(field, "must be between 0 and 2147483647, inclusive");
        }
        _ => {}
    }
    let tolerated = items(new, "/spec/tolerations");
    if items(old, "/spec/tolerations").iter().any(|was| !tolerated.contains(was)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        return Err(Refusal::invalid(kind, name, "spec.tolerations", "FieldValueForbidden", why));
    }
    if fixed_part(old) == fixed_part(new) {
        return Ok(());
    }
    let why = "pod updates may not change fields other than \
               `spec.containers[*].image`,`spec.initContainers[*].image`,\
               `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
               tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it \
               was previously negative)";
    Err(Refusal::invalid(kind, name, "spec", "FieldValueForbidden", why))
}

fn fixed_part(pod: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or_default();
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let fields = fields_of(&mut spec);
    fields.remove("activeDeadlineSeconds");
    fields.remove("tolerations");
    fields.remove("schedulingGates");
    if grace.is_some_and(|grace| grace < 0) {
        fields.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    for list in ["containers", "initContainers"] {
        if let Some(containers) = fields.get_mut(list).and_then(Value::as_array_mut) {
            for container in containers {
                fields_of(container).remove("image");
            }
        }
    }
    spec
}

fn qos_class(pod: &Value) -> &'static str {
    let quantity = |container: &Value, kind: &str, resource: &str| {
        container.pointer(&format!("/resources/{kind}/{resource}")).cloned()
    };
    let (mut any, mut guaranteed) = (false, true);
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in items(pod, list) {
            for resource in ["cpu", "memory"] {
                let limit = quantity(container, "limits", resource);
                let request = quantity(container, "requests", resource);
                any |= limit.is_some() || request.is_some();
                guaranteed &= limit.is_some() && (request.is_none() || request == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod.pointer("/metadata/annotations")?.get(name)?.as_str()
}
