//! Generates the default configuration as a file to edit.

use std::fmt::Write;

use serde_json::Value;

use super::{Field, OptionSection, ValueKind, default_of, sections};
use crate::emit::{scalar, write_entry};
use crate::{API_VERSION, KIND};

/// The maximum length of a line.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Configuration of winddown; winddown.yaml(5) has the same in more words. `winddown config check`
# tests it, `winddown config show` prints what is in effect, `systemctl reload winddown` applies
# what it can. Every field may be left out; what stands here is its default. Durations are written
# as 30s, 1m30s or \"1min 30s\".
";

pub(super) fn document() -> String {
    let mut yaml = format!("{HEAD}apiVersion: {API_VERSION}\nkind: {KIND}\n");
    for section in sections() {
        heading(&mut yaml, section);
        for field in section.fields() {
            yaml.push('\n');
            one(&mut yaml, field);
        }
    }
    yaml
}

fn heading(yaml: &mut String, section: &OptionSection) {
    let title = section.title;
    let line = "-".repeat(WIDTH.saturating_sub(title.len() + 7));
    let _ = write!(yaml, "\n# --- {title} {line}\n");
}

fn one(yaml: &mut String, field: &Field) {
    let restart = (!field.live).then_some("Takes effect at restart.");
    let end: Vec<&str> = field.effect.sentence().into_iter().chain(restart).collect();
    comment(yaml, "", &with_bounds(field, &end.join(" ")));
    if let ValueKind::Object(fields) = &field.kind {
        for field in fields {
            let doc = format!("- {}, {}", field.name, lower(&with_bounds(field, "")));
            comment(yaml, "", &doc);
        }
    }
    match (default_of(field.name), &field.kind) {
        (Some(Value::Object(set)), ValueKind::Object(fields)) => {
            let _ = writeln!(yaml, "{}:", field.name);
            for field in fields {
                let _ = match set.get(field.name) {
                    Some(value) => writeln!(yaml, "  {}: {}", field.name, scalar(value)),
                    None => writeln!(yaml, "#   {}: {}", field.name, field.example),
                };
            }
        }
        (Some(Value::Array(words)), ValueKind::Words(_)) => {
            let words: Vec<String> = words.iter().map(scalar).collect();
            let _ = writeln!(yaml, "{}: [{}]", field.name, words.join(", "));
        }
        (Some(value), _) => write_entry(yaml, field.name, &value),
        (None, ValueKind::Object(fields)) => {
            let _ = writeln!(yaml, "# {}:", field.name);
            for field in fields {
                let _ = writeln!(yaml, "#   {}: {}", field.name, field.example);
            }
        }
        (None, ValueKind::Map { .. } | ValueKind::List(_)) => {
            let _ = writeln!(yaml, "# {}:", field.name);
            for line in field.example.lines() {
                let _ = writeln!(yaml, "#   {line}");
            }
        }
        (None, _) => {
            let _ = writeln!(yaml, "# {}: {}", field.name, field.example);
        }
    }
}

/// Returns the field's documentation, with its bounds and `end` after the first paragraph.
fn with_bounds(field: &Field, end: &str) -> String {
    let (first, rest) = match field.doc.split_once("\n\n") {
        Some((first, rest)) => (first, format!("\n\n{rest}")),
        None => (&*field.doc, String::new()),
    };
    let bounds = field.kind.bounds().map(|bounds| format!(" {bounds}.")).unwrap_or_default();
    let gap = if end.is_empty() { "" } else { " " };
    format!("{first}{bounds}{gap}{end}{rest}")
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Writes the text as comment lines.
fn comment(yaml: &mut String, indent: &str, text: &str) {
    for (n, paragraph) in text.split("\n\n").enumerate() {
        if n > 0 {
            let _ = writeln!(yaml, "{indent}#");
        }
        let mut line = format!("{indent}#");
        for word in paragraph.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(yaml, "{line}");
                line = format!("{indent}#");
            }
            let _ = write!(line, " {word}");
        }
        let _ = writeln!(yaml, "{line}");
    }
}
