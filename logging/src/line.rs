//! A line of the log, built from a `tracing` event.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use winddown_shared::display::clean;

use super::kinds::{self, Kind};

/// The field with the kind of a line; see [`kinds::KINDS`].
const KIND: &str = "log_kind";

/// The longest value in bytes; longer ones are truncated, because a line must fit into a datagram.
const LONGEST: usize = 16 * 1024;

/// A line, independent of its sink.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The place in the program that it comes from.
    pub(super) place: &'static Metadata<'static>,
    /// The message.
    pub(super) text: String,
    /// The fields, in the order of the source.
    pub(super) fields: Vec<(&'static str, String)>,
    /// The kind of line; `None` for ordinary ones.
    pub(super) kind: Option<&'static Kind>,
    /// How many repetitions were held back before this line.
    pub(super) repeated: u32,
}

impl Line {
    /// Builds a line from an event.
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut line = Self {
            place: event.metadata(),
            text: String::new(),
            fields: Vec::new(),
            kind: None,
            repeated: 0,
        };
        event.record(&mut line);
        if line.kind.is_some() {
            // Keep it on one line, whatever the names and messages in it contain.
            line.text = on_one_line(&line.text);
        }
        line
    }

    pub(super) fn level(&self) -> Level {
        *self.place.level()
    }

    /// Returns the value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn put(&mut self, field: &Field, mut value: String) {
        if value.len() > LONGEST {
            value.truncate(value.floor_char_boundary(LONGEST));
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
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a String fails only if the value's own formatting fails.
        let _ = write!(text, "{value:?}");
        self.put(field, text);
    }
}

/// Returns `text` as made safe by [`clean`], with line breaks as `; `, so that quoted text cannot forge a line.
pub(super) fn on_one_line(text: &str) -> String {
    let text = text.trim_end();
    match text.contains(['\n', '\r', '\t']) {
        true => clean(&text.replace('\n', "; ").replace('\r', "").replace('\t', " ")).into_owned(),
        false => clean(text).into_owned(),
    }
}
