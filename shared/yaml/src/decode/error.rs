//! The errors of serde, with their positions.

use std::fmt;

use super::Decoder;
use crate::{Position, Problem, fields::suggestion};

/// An error, which gets its position from the innermost value that it passes on its way out.
#[derive(Debug)]
pub(super) struct DecodeError {
    place: Option<(Position, String)>,
    message: String,
}

/// The problem of a field that the surrounding struct does not have.
pub(super) fn unknown(decoder: &Decoder<'_>) -> Problem {
    let field = decoder.path.to_string();
    let key = decoder.path.last_key().unwrap_or_default();
    let hint = match decoder.path.around_struct().filter(|_| decoder.outer.contains(&key)) {
        Some(around) => format!(": it belongs to {around}"),
        None => suggestion(key, decoder.known),
    };
    Problem::new(decoder.key_at, field, format!("unknown field{hint}"))
}

impl DecodeError {
    pub(super) fn at(decoder: &Decoder<'_>, message: String) -> Self {
        Self { place: Some((decoder.node.at, decoder.path.to_string())), message }
    }

    /// Sets the position of the error, unless it has one.
    pub(super) fn or_at(mut self, decoder: &Decoder<'_>) -> Self {
        if self.place.is_none() {
            self.place = Some((decoder.node.at, decoder.path.to_string()));
        }
        self
    }

    /// The field, and the problem to show.
    pub(super) fn into_problem(self, root: Position) -> (String, Problem) {
        let (at, field) = self.place.unwrap_or((root, String::new()));
        let problem = Problem::new(at, &field, self.message);
        (field, problem)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl serde::de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { place: None, message: message.to_string() }
    }
}
