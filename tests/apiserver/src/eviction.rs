//! `pods/eviction`: deletion with the consent of the pod's disruption budget.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::clock;
use crate::kinds;
use crate::refusal::Refusal;
use crate::selector::object_selects;
use crate::store::Key;
use crate::target::{Query, Target};
use crate::write::{DeleteOptions, Writer, fields_of, text};

/// Handles a POST of an `Eviction`.
pub(crate) fn evict(
    writer: &mut Writer<'_>,
    target: &Target,
    body: &Value,
    query: &Query,
) -> Result<Value, Refusal> {
    let name = target.name.as_deref().unwrap_or_default();
    let own = text(body, "/metadata/name");
    if !own.is_empty() && own != name {
        return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = body.get("deleteOptions").cloned().unwrap_or_default();
    let options = DeleteOptions::of(&options, query)?;
    let key = Key::new(target.kind, target.namespace.as_deref(), name);
    let pod = writer.store.get(&key).ok_or_else(|| match &writer.node {
        Some(_) => Refusal::no_pod_to_evict(name),
        None => Refusal::not_found(target.kind, name),
    })?;
    let pod = Arc::clone(pod);
    if !needs_no_consent(&pod) {
        ask_budget(writer, target, &pod)?;
    }
    let pods = Target { subresource: Some("status".to_owned()), ..target.clone() };
    let mut options = options;
    options.preconditions.check(target.kind, name, &pod)?;
    // Already checked; writing the condition below would invalidate it.
    options.preconditions.resource_version = None;
    let now = clock::seconds(writer.now);
    writer.update(&pods, name, |old| Ok(marked(old, &now)))?;
    writer.delete(target, name, &options)?;
    Ok(
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}

/// Whether a pod may be evicted without consulting a budget, because it has terminated, has not started, or is being
/// deleted.
fn needs_no_consent(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed" | "Pending")
        || !text(pod, "/metadata/deletionTimestamp").is_empty()
}

/// Takes one disruption from the pod's budget, if it has one.
fn ask_budget(writer: &mut Writer<'_>, target: &Target, pod: &Value) -> Result<(), Refusal> {
    let Some(kind) = kinds::called("poddisruptionbudgets") else { return Ok(()) };
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let labels = pod.pointer("/metadata/labels");
    let budgets: Vec<(Key, Arc<Value>)> = writer
        .store
        .of_kind(kind)
        .filter(|(key, budget)| {
            key.namespace == namespace
                && budget.pointer("/spec/selector").is_some_and(|s| object_selects(s, labels))
        })
        .map(|(key, budget)| (key.clone(), Arc::clone(budget)))
        .collect();
    let (key, budget) = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                           subresource does not support.";
            return Err(Refusal::broken(message));
        }
    };
    if !is_ready(pod) && unready_may_go(budget) {
        return Ok(());
    }
    let allowed = allowed(&key.name, budget)?;
    let spent = spent(budget, allowed, text(pod, "/metadata/name"), &clock::seconds(writer.now));
    writer.store.put(key.clone(), spent);
    Ok(())
}

/// The budget with one disruption less.
fn spent(budget: &Value, allowed: i64, pod: &str, now: &str) -> Value {
    let mut spent = budget.clone();
    let generation = budget.pointer("/metadata/generation").cloned();
    let status = fields_of(fields_of(&mut spent).entry("status").or_insert(Value::Null));
    status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
    fields_of(status.entry("disruptedPods").or_insert(Value::Null))
        .insert(pod.to_owned(), json!(now));
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "observedGeneration": generation, "lastTransitionTime": now,
        });
        status.insert("conditions".to_owned(), json!([condition]));
    }
    spent
}

fn allowed(name: &str, budget: &Value) -> Result<i64, Refusal> {
    const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let number =
        |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    if number("/status/observedGeneration") < number("/metadata/generation") {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(Refusal::budget(VIOLATED, &cause, 10));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed > 0 {
        return Ok(allowed);
    }
    let (desired, current) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
    let cause = if current <= desired {
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    };
    Err(Refusal::budget(VIOLATED, &cause, 0))
}

fn unready_may_go(budget: &Value) -> bool {
    let number =
        |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let (desired, current) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
    text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (current >= desired && desired > 0)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
    })
}

/// The pod with the condition that records why it is evicted.
fn marked(pod: &Value, now: &str) -> Value {
    let mut pod = pod.clone();
    let status = fields_of(fields_of(&mut pod).entry("status").or_insert(Value::Null));
    let conditions = status.entry("conditions").or_insert(json!([]));
    if let Value::Array(conditions) = conditions {
        conditions.retain(|condition| text(condition, "/type") != "DisruptionTarget");
        conditions.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now,
        }));
    }
    pod
}
