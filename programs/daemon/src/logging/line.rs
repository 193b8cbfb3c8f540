//! A line of the log, built from a `tracing` event.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use winddown_shared::display::{clean, truncated};

use super::kinds::{self, LineKind};

/// The field with the kind of a line; see [`kinds::KINDS`].
const KIND: &str = "log_kind";

/// The longest value in bytes; longer ones are truncated, because a line must fit into a datagram.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// A line, independent of its sink.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The place in the program that it comes from.
    pub(super) place: &'static Metadata<'static>,
    pub(super) text: String,
    /// The fields, in the order of the source.
    pub(super) fields: Vec<(&'static str, String)>,
    /// The kind of line; `None` for ordinary ones.
    pub(super) kind: Option<&'static LineKind>,
    /// How many repetitions were held back before this line.
    pub(super) repeated: u32,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut line = Self {
            place: event.metadata(),
            text: String::new(),
            fields: Vec::new(),
            kind: None,
            repeated: 0,
        };
        event.record(&mut line);
        line.name_subject();
        line
    }

    pub(super) fn level(&self) -> Level {
        *self.place.level()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The fields that say more than the text: it names the pod and the container.
    pub(super) fn details(&self) -> impl Iterator<Item = &(&'static str, String)> {
        let of_a_pod = self.field("namespace").is_some();
        self.fields.iter().filter(move |(name, _)| match *name {
            "pod" | "namespace" | "container" => false,
            "name" => !of_a_pod,
            _ => true,
        })
    }

    /// Puts the pod and the container that the fields name in front of the text, unless it names them: who reads a
    /// journal sees only texts.
    fn name_subject(&mut self) {
        let (namespace, uid) = (self.field("namespace"), self.field("uid"));
        let pod = match (self.field("pod"), namespace) {
            (Some(pod), Some(namespace)) if !pod.contains('/') => {
                Some(format!("{namespace}/{pod}"))
            }
            (Some(pod), _) => Some(pod.to_owned()),
            (None, Some(namespace)) => self.field("name").map(|name| format!("{namespace}/{name}")),
            (None, None) => None,
        };
        let pod = match pod {
            Some(pod) => Some((pod.clone(), pod)),
            None => uid.map(|uid| (uid.to_owned(), format!("pod {uid}"))),
        };
        let container = self.field("container");
        let container = container.map(|name| (name.to_owned(), format!("container {name}")));
        let subjects = pod.into_iter().chain(container);
        let left_out = subjects.filter(|(name, _)| !is_named(name, &self.text));
        let left_out: Vec<String> = left_out.map(|(_, title)| title).collect();
        if !left_out.is_empty() {
            self.text = format!("{}: {}", left_out.join(", "), self.text);
        }
    }

    /// Every sink gets what is put here: pods choose part of it, and must not forge a line or steer a terminal.
    fn put(&mut self, field: &Field, value: &str) {
        let mut value = on_one_line(value);
        if value.len() > MAX_VALUE_BYTES {
            value.truncate(truncated(&value, MAX_VALUE_BYTES).len());
            value.push('…');
        }
        match field.name() {
            "message" => self.text = value,
            KIND => self.kind = kinds::named(&value),
            name => self.fields.push((name, value)),
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a String fails only if the value's own formatting fails.
        let _ = write!(text, "{value:?}");
        self.put(field, &text);
    }
}

/// Whether `text` has this name, and not only as a part of a longer one.
fn is_named(name: &str, text: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '-' || c == '/';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(goes_on) && !text[at + name.len()..].starts_with(goes_on)
    })
}

/// Returns `text` as made safe by [`clean`], with line breaks as `; `, so that quoted text cannot forge a line.
fn on_one_line(text: &str) -> String {
    let text = text.trim_end();
    match text.contains(['\n', '\r', '\t']) {
        true => clean(&text.replace('\n', "; ").replace('\r', "").replace('\t', " ")).into_owned(),
        false => clean(text).into_owned(),
    }
}
