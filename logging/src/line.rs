//! One line of the log, read once from what a place in the program said.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use winddown_shared::display::clean;

use super::kinds::{self, Kind};

/// The name of the field by which a line says what kind it is; see [`kinds::KINDS`].
const KIND: &str = "log_kind";

/// Values longer than this are cut: a line has to fit a datagram.
const LONGEST: usize = 16 * 1024;

/// A line, independent of where it goes.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Where in the program it comes from; static for each place.
    pub(super) place: &'static Metadata<'static>,
    /// For people.
    pub(super) text: String,
    /// In the order in which they were written.
    pub(super) fields: Vec<(&'static str, String)>,
    /// What is known of lines of this kind; none for ordinary ones.
    pub(super) kind: Option<&'static Kind>,
    /// How often the same was said and held back before this line.
    pub(super) repeated: u32,
}

impl Line {
    /// Reads an event.
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
            // A decision is one line, whatever is in the names and messages it quotes.
            line.text = on_one_line(&line.text);
        }
        line
    }

    pub(super) fn level(&self) -> Level {
        *self.place.level()
    }

    /// The field's value.
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
        // Writing to a String fails only if the value's own formatting does.
        let _ = write!(text, "{value:?}");
        self.put(field, text);
    }
}

/// `text` as [`clean`] makes it safe, with line ends as `; `: nothing that is quoted can forge a line.
pub(super) fn on_one_line(text: &str) -> String {
    let text = text.trim_end();
    match text.contains(['\n', '\r', '\t']) {
        true => clean(&text.replace('\n', "; ").replace('\r', "").replace('\t', " ")).into_owned(),
        false => clean(text).into_owned(),
    }
}
