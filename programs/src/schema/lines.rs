//! The schemas of the answers of `winddown plan … -f FILE -o json`, one object per case. The policy crates write these
//! answers, in the format that is used to compare them with other implementations of the kubelet's rules.

use serde_json::{Value, json};

use super::id;
use crate::SchemaName;

/// Returns the schema of `plan shutdown -f`.
pub(super) fn shutdown() -> Value {
    let pod = object(
        "One pod.",
        &["name", "graceSeconds"],
        &json!({
            "name": field("string", "metadata.name."),
            "graceSeconds": field("integer", "The time between its SIGTERM and SIGKILL."),
        }),
    );
    let group = object(
        "Pods that are ended together.",
        &["priority", "shutdownGracePeriodSeconds", "pods"],
        &json!({
            "priority": field("integer", "The lowest priority that falls into the group."),
            "name": field("string", "What its pods are for, where that puts them together."),
            "shutdownGracePeriodSeconds": field("integer", "The group's time."),
            "pods": {"type": "array", "items": pod},
        }),
    );
    line(
        SchemaName::PlanShutdownLine,
        "One case of `winddown plan shutdown -f FILE -o json`.",
        &["groups", "periodRequested"],
        &json!({
            "id": echoed(),
            "periodRequested": field("string", "The time of all groups together, as 30s."),
            "groups": {"type": "array", "items": group, "description": "In the order of their end."},
        }),
    )
}

/// The schema of a pod that a preemption considers.
fn candidate() -> Value {
    object(
        "One pod that was considered.",
        &[
            "name",
            "namespace",
            "qos",
            "critical",
            "preemptable",
            "priority",
            "cpuMilli",
            "memoryBytes",
            "frees",
            "distance",
            "terminating",
            "taken",
            "reason",
            "text",
        ],
        &json!({
            "name": field("string", "metadata.name."),
            "namespace": field("string", "metadata.namespace."),
            "qos": field("string", "Guaranteed, Burstable or BestEffort."),
            "critical": field("boolean", "A static pod, or of a system priority class."),
            "preemptable": field("boolean", "Whether the arriving pod may end it."),
            "priority": nullable_field("integer", "spec.priority; null when unset."),
            "cpuMilli": field("integer", "What it asked for, in thousandths of a CPU."),
            "memoryBytes": field("integer", "What it asked for, in bytes."),
            "frees": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "What its end would give back, by resource.",
            },
            "distance": field("number", "How far what it frees is from what is lacking."),
            "terminating": field("boolean", "It is ending already."),
            "taken": field("boolean", "It is one of the victims."),
            "reason": field("string", "Why it would end or stay, in one word."),
            "criterion": field("string", "By what another pod is the better choice."),
            "text": field("string", "The same for people."),
        }),
    )
}

/// Returns the schema of `plan preemption -f`.
pub(super) fn preemption() -> Value {
    line(
        SchemaName::PlanPreemptionLine,
        "One case of `winddown plan preemption -f FILE -o json`.",
        &["victims", "error"],
        &json!({
            "id": echoed(),
            "victims": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The pods that would end, in that order.",
            },
            "error": nullable_field("string", "Why no pod would end."),
            "strategy": field("string", "With --explain: how they were chosen."),
            "shown": nullable_field(
                "string",
                "With --explain: the last criterion by which no set is better.",
            ),
            "candidates": {
                "type": "array",
                "items": candidate(),
                "description": "With --explain: every pod, and why it would end or stay.",
            },
        }),
    )
}

/// Returns the schema of `plan eviction -f`.
pub(super) fn eviction() -> Value {
    let pod = object(
        "One pod of the ranking.",
        &["namespace", "name", "priority", "usage", "request", "exceedsRequest", "verdict"],
        &json!({
            "namespace": field("string", "metadata.namespace."),
            "name": field("string", "metadata.name."),
            "priority": field("integer", "spec.priority, 0 when unset."),
            "usage": nullable_field("integer", "What it uses; null when it was not measured."),
            "request": field("integer", "What it asked for."),
            "exceedsRequest": nullable_field("boolean", "Whether it uses more than it asked for."),
            "verdict": field("string", "What would be made of it."),
        }),
    );
    line(
        SchemaName::PlanEvictionLine,
        "One case of `winddown plan eviction -f FILE -o json`.",
        &["order"],
        &json!({
            "id": echoed(),
            "order": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The pods as the kubelet would end them.",
            },
            "pods": {"type": "array", "items": pod, "description": "With --explain."},
        }),
    )
}

fn line(name: SchemaName, title: &str, required: &[&str], properties: &Value) -> Value {
    let mut schema = object(title, required, properties);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(id(name));
    schema
}

pub(super) fn object(description: &str, required: &[&str], properties: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

fn echoed() -> Value {
    json!({"description": "The case's own `id`, whatever it is; absent when it has none."})
}

pub(super) fn field(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

fn nullable_field(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}
