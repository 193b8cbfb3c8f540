//! The JSON schema of our own configuration, generated from the table of its fields.
//!
//! It is for editors and for programs that write configurations. It accepts everything that the agent accepts, except
//! null for an unset field and other spellings of true and false. Only the agent checks bounds of durations and
//! relations between fields.

use serde_json::{Map, Value, json};

use super::reference::{self, Field, Names, ValueKind};
use super::{API_VERSION, KIND};

/// A duration as Go (`1m30s`) or systemd (`1min 30s`) writes it.
const DURATION: &str = r"^\s*[0-9.]+\s*[a-zA-Zµμ]+([\s0-9.a-zA-Zµμ]*[a-zA-Zµμ])?\s*$";
/// A Kubernetes quantity.
const QUANTITY: &str =
    r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?$";
const PERCENT: &str = r"^\+?[0-9.]+([eE][+-]?[0-9]+)?%$";

/// Returns the schema, in the 2020-12 dialect. It does not accept additional fields.
pub fn schema() -> Value {
    let mut properties = Map::new();
    properties.insert("apiVersion".to_owned(), json!({"const": API_VERSION}));
    properties.insert("kind".to_owned(), json!({"const": KIND}));
    for field in reference::fields() {
        let mut one = property(field);
        if let (Some(default), Value::Object(one)) = (reference::default_of(field.name), &mut one) {
            one.insert("default".to_owned(), default);
        }
        properties.insert(field.name.to_owned(), one);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:winddown.dev:v1alpha1:Configuration",
        "title": "Configuration of winddown",
        "description": "The file /etc/winddown/config.yaml; see winddown.yaml(5).",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(field: &Field) -> Value {
    let mut schema = of_kind(&field.kind);
    if let Value::Object(schema) = &mut schema {
        let bounds = field.kind.bounds().map(|bounds| format!(" {bounds}.")).unwrap_or_default();
        let doc = field.doc.replace("\n\n", " ").replace('`', "");
        schema.insert("description".to_owned(), json!(format!("{doc}{bounds}")));
    }
    schema
}

fn of_kind(kind: &ValueKind) -> Value {
    match kind {
        ValueKind::Flag => json!({"type": "boolean"}),
        ValueKind::Text { pattern: "" } | ValueKind::Address(_) => json!({"type": "string"}),
        ValueKind::Text { pattern } => json!({"type": "string", "pattern": pattern}),
        ValueKind::Path { empty: false } => json!({"type": "string", "pattern": "^/"}),
        ValueKind::Path { empty: true } => json!({"type": "string", "pattern": "^(/.*)?$"}),
        ValueKind::Choice(words) => json!({"enum": words}),
        ValueKind::Integer { least, most, .. } => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        // 0 needs no unit.
        ValueKind::Duration { zero: true, .. } => json!({"anyOf": [
            {"type": "string", "pattern": format!("{DURATION}|^[+]?0$")},
            {"const": 0},
        ]}),
        ValueKind::Duration { .. } => json!({"type": "string", "pattern": DURATION}),
        ValueKind::Size { .. } => amount(&[QUANTITY]),
        ValueKind::Percent => json!({"type": "string", "pattern": PERCENT}),
        ValueKind::Threshold => amount(&[QUANTITY, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?%+$"]),
        ValueKind::Quantity => amount(&[QUANTITY]),
        ValueKind::Words(words) => json!({"type": "array", "items": {"enum": words}}),
        ValueKind::Addresses => {
            json!({"type": "array", "items": {"type": "string", "pattern": "^[0-9a-fA-F.:]+$"}})
        }
        ValueKind::Texts(pattern) => {
            json!({"type": "array", "items": {"type": "string", "pattern": pattern}})
        }
        ValueKind::Command => json!({
            "type": "array", "minItems": 1, "items": {"type": "string"},
            "prefixItems": [{"type": "string", "pattern": "^/"}],
        }),
        ValueKind::Map { names, value } => {
            let names = match names {
                Names::Words(words) => json!({"enum": words}),
                Names::Like(pattern) => json!({"pattern": pattern}),
            };
            json!({
                "type": "object",
                "propertyNames": names,
                "additionalProperties": of_kind(value),
            })
        }
        ValueKind::Object(fields) => object(fields),
        ValueKind::List(fields) => json!({"type": "array", "items": object(fields)}),
    }
}

/// Returns the schema of a YAML number, or of a number with a unit.
fn amount(patterns: &[&str]) -> Value {
    json!({"type": ["string", "number"], "pattern": patterns.join("|")})
}

fn object(fields: &[Field]) -> Value {
    let required: Vec<&str> =
        fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), property(field))).collect();
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}
