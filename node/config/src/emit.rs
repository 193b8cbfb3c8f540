//! Writes values as YAML.

use std::fmt::Write;

use serde_json::{Value, json};

/// Writes one field in block style. Fields are at most two levels deep.
pub(super) fn write_entry(yaml: &mut String, key: &str, value: &Value) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Object(map) if map.is_empty() => writeln!(yaml, "{key}: {{}}"),
        Value::Object(map) => {
            let _ = writeln!(yaml, "{key}:");
            map.iter()
                .try_for_each(|(k, v)| writeln!(yaml, "  {}: {}", scalar(&json!(k)), scalar(v)))
        }
        Value::Array(items) if items.is_empty() => writeln!(yaml, "{key}: []"),
        Value::Array(items) => {
            let _ = writeln!(yaml, "{key}:");
            items.iter().try_for_each(|item| {
                let Value::Object(entries) = item else {
                    return writeln!(yaml, "  - {}", scalar(item));
                };
                entries.iter().enumerate().try_for_each(|(n, (k, v))| {
                    let lead = if n == 0 { "  - " } else { "    " };
                    writeln!(yaml, "{lead}{k}: {}", scalar(v))
                })
            })
        }
        scalar_value => writeln!(yaml, "{key}: {}", scalar(scalar_value)),
    };
}

/// Returns a value as YAML on one line. A text is only quoted if necessary.
pub fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.-_%:".contains(&b);
    // Text that YAML would parse as a number, a bool or null must be quoted.
    let starts_as_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let duration_like =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'i', '%']);
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
    );
    match text.bytes().all(plain)
        && (starts_as_text || duration_like)
        && !word
        && !text.ends_with(':')
    {
        true => text.clone(),
        false => value.to_string(),
    }
}
