//! Answers of `winddown plan … -f FILE -o json`: one object per case. They are written by the policy
//! crates, in the form in which other implementations of the kubelet's rules are compared.

use serde_json::{Value, json};

use super::id;
use crate::SchemaName;

/// `plan shutdown -f`.
pub(super) fn shutdown() -> Value {
    let pod = object(
        "One pod.",
        &["name", "graceSeconds"],
        &json!({
            "name": said("string", "metadata.name."),
            "graceSeconds": said("integer", "The time between its SIGTERM and SIGKILL."),
        }),
    );
    let group = object(
        "Pods that are ended together.",
        &["priority", "shutdownGracePeriodSeconds", "pods"],
        &json!({
            "priority": said("integer", "The lowest priority that falls into the group."),
            "name": said("string", "What its pods are for, where that puts them together."),
            "shutdownGracePeriodSeconds": said("integer", "The group's time."),
            "pods": {"type": "array", "items": pod},
        }),
    );
    line(
        SchemaName::PlanShutdownLine,
        "One case of `winddown plan shutdown -f FILE -o json`.",
        &["groups", "periodRequested"],
        &json!({
            "id": echoed(),
            "periodRequested": said("string", "The time of all groups together, as 30s."),
            "groups": {"type": "array", "items": group, "description": "In the order of their end."},
        }),
    )
}

/// `plan preemption -f`.
pub(super) fn preemption() -> Value {
    let candidate = object(
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
            "name": said("string", "metadata.name."),
            "namespace": said("string", "metadata.namespace."),
            "qos": said("string", "Guaranteed, Burstable or BestEffort."),
            "critical": said("boolean", "A static pod, or of a system priority class."),
            "preemptable": said("boolean", "Whether the arriving pod may end it."),
            "priority": said_or_null("integer", "spec.priority; null when unset."),
            "cpuMilli": said("integer", "What it asked for, in thousandths of a CPU."),
            "memoryBytes": said("integer", "What it asked for, in bytes."),
            "frees": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "description": "What its end would give back, by resource.",
            },
            "distance": said("number", "How far what it frees is from what is lacking."),
            "terminating": said("boolean", "It is ending already."),
            "taken": said("boolean", "It is one of the victims."),
            "reason": said("string", "Why it would end or stay, in one word."),
            "criterion": said("string", "By what another pod is the better choice."),
            "text": said("string", "The same for people."),
        }),
    );
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
            "error": said_or_null("string", "Why no pod would end."),
            "strategy": said("string", "With --explain: how they were chosen."),
            "shown": said_or_null(
                "string",
                "With --explain: the last criterion by which no set is better.",
            ),
            "candidates": {
                "type": "array",
                "items": candidate,
                "description": "With --explain: every pod, and why it would end or stay.",
            },
        }),
    )
}

/// `plan eviction -f`.
pub(super) fn eviction() -> Value {
    let pod = object(
        "One pod of the ranking.",
        &["namespace", "name", "priority", "usage", "request", "exceedsRequest", "verdict"],
        &json!({
            "namespace": said("string", "metadata.namespace."),
            "name": said("string", "metadata.name."),
            "priority": said("integer", "spec.priority, 0 when unset."),
            "usage": said_or_null("integer", "What it uses; null when it was not measured."),
            "request": said("integer", "What it asked for."),
            "exceedsRequest": said_or_null("boolean", "Whether it uses more than it asked for."),
            "verdict": said("string", "What would be made of it."),
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

fn object(description: &str, required: &[&str], properties: &Value) -> Value {
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

fn said(kind: &str, description: &str) -> Value {
    json!({"type": kind, "description": description})
}

fn said_or_null(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}
