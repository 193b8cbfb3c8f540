//! Writes values as YAML. Characters that would control a terminal or reorder its line are escaped.

use serde_json::{Value, json};
use winddown_shared::display::escaped;

/// Returns a value as a document in block style.
pub fn yaml(value: &Value) -> String {
    let mut yaml = String::new();
    match is_block(value) {
        true => write_block(&mut yaml, 0, value),
        false => yaml.extend([&*scalar(value), "\n"]),
    }
    yaml
}

/// Writes one field in block style.
pub(super) fn write_entry(yaml: &mut String, key: &str, value: &Value) {
    write_entry_at(yaml, 0, key, value);
}

/// Writes a field whose key is this far to the right, where its line has come to.
fn write_entry_at(yaml: &mut String, indent: usize, key: &str, value: &Value) {
    match is_block(value) {
        true => {
            yaml.extend([key, ":\n"]);
            write_block(yaml, indent + 2, value);
        }
        false => yaml.extend([key, ": ", &*scalar(value), "\n"]),
    }
}

fn write_block(yaml: &mut String, indent: usize, value: &Value) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                yaml.push_str(&margin);
                write_entry_at(yaml, indent, &scalar(&json!(key)), value);
            }
        }
        Value::Array(items) => {
            for item in items {
                let dash = yaml.len() + indent;
                match is_block(item) {
                    true => write_block(yaml, indent + 2, item),
                    false => yaml.extend([&*margin, "  ", &*scalar(item), "\n"]),
                }
                yaml.replace_range(dash..=dash, "-");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value takes more than the rest of a line.
fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
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
        false => quoted(text),
    }
}

/// Returns a text in double quotes. YAML has JSON's escapes, but not the two that JSON has for a character beyond 16 bits.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    let escape = |c| match u32::from(c) {
        short @ ..=0xffff => format!("\\u{short:04x}"),
        long => format!("\\U{long:08x}"),
    };
    escaped(&json, escape).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_each_other_are_written_in_block_style() {
        let value = json!({
            "a": {"b": {}, "c": [1, "two", [], {"d": [{"e": null}, [true]], "f": 0.5}]},
            "12": "12",
        });
        let expected = "\"12\": \"12\"\na:\n  b: {}\n  c:\n    - 1\n    - two\n    - []\n    - d:\n        \
                        - e: null\n        - - true\n      f: 0.5\n";
        assert_eq!(yaml(&value), expected);
        assert_eq!((yaml(&json!("a b")), yaml(&json!([]))), ("\"a b\"\n".into(), "[]\n".into()));
    }

    /// A terminal shows it as it comes, and anyone who can put a pod on the node can write into it.
    #[test]
    fn what_would_control_a_terminal_or_reorder_its_line_is_escaped_and_means_the_same() {
        let text = "é 日本 \u{9b}31m \u{7f} \u{1b} \u{202e} \n \u{e0041}";
        let value = json!({"a\u{202e}": [text]});
        let written = yaml(&value);
        assert!(
            written.contains(r"é 日本 \u009b31m \u007f \u001b \u202e \n \U000e0041"),
            "{written}"
        );
        let read = winddown_yaml::parse(&written).unwrap();
        let (key, _) = read.entry("a\u{202e}").unwrap();
        assert_eq!(&*key.text, "a\u{202e}");
        let read = winddown_yaml::decode::<std::collections::BTreeMap<String, Vec<String>>>(&read);
        assert_eq!(read.value.unwrap()["a\u{202e}"], [text]);
    }
}
