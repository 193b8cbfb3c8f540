//! The schema of the lines of the shutdown socket, in both directions. `winddown-systemd` implements the protocol.

use serde_json::{Value, json};

use super::lines::{field, object};
use super::{SchemaName, id};

/// Returns the schema of any line, selected by its `kind`.
// Over the limit because it is a table: one row per line of the protocol, with its fields.
pub(super) fn lines() -> Value {
    let number = |least: u32, description: &str| json!({"type": "number", "minimum": least, "description": description});
    let holder = object(
        "A lock that is held.",
        &["id", "who"],
        &json!({"id": field("integer", "As in `Granted`."), "who": field("string", "Who holds it.")}),
    );
    let kinds = [
        kind(
            "Watch",
            "To the side that listens: how do things stand, and what changes?",
            &[],
            json!({}),
        ),
        kind(
            "Inhibit",
            "To the side that listens: a lock is wanted.",
            &["who"],
            json!({
                "who": field("string", "Who delays the shutdown; 256 bytes at most."),
                "why": field("string", "For people; 256 bytes at most."),
                "turn": {
                    "enum": ["beforePods", "beforeSystemPods", "afterPods"],
                    "description": "When winddown waits for the holder; afterPods if it is left out.",
                },
            }),
        ),
        kind(
            "Shutdown",
            "To who watches: how things stand.",
            &["preparing", "delaySeconds"],
            json!({
                "preparing": field("boolean", "The node goes down."),
                "delaySeconds": number(0, "The longest time that a lock is waited for."),
                "type": {
                    "type": "string",
                    "description": "powerOff, reboot, halt, kexec or softReboot; another means that it is not known.",
                },
                "message": field("string", "What people are told."),
                "inhibitors": {"type": "array", "items": holder, "description": "The locks that are held."},
            }),
        ),
        kind(
            "Granted",
            "To who wants a lock: the connection is one from now on.",
            &["id"],
            json!({"id": field("integer", "Its number.")}),
        ),
        kind(
            "Refused",
            "To who wants a lock: there is none to be had.",
            &["reason"],
            json!({"reason": field("string", "For people.")}),
        ),
        kind(
            "Turn",
            "To who holds a lock: it is waited for now.",
            &["seconds"],
            json!({"seconds": number(0, "For so long.")}),
        ),
    ];
    let mut schema = object(
        "One line of the shutdown socket (/usr/share/winddown/examples/shutdown-socket), of either side.",
        &["apiVersion", "kind"],
        &json!({
            "apiVersion": {"const": "winddown.dev/v1alpha1"},
            "kind": field("string", "Which line it is."),
        }),
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(id(SchemaName::ShutdownSocket));
    schema["oneOf"] = json!(kinds);
    schema
}

fn kind(name: &str, description: &str, required: &[&str], mut properties: Value) -> Value {
    properties["kind"] = json!({"const": name});
    object(description, required, &properties)
}
