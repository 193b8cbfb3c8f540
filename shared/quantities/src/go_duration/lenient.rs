//! Durations as people write them in configuration files and on command lines.

use std::time::Duration;

use super::{GoDuration, GoDurationError, GoDurationRangeError};
use crate::abbreviated;

/// Text that is neither a Go duration nor one in words.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurationError {
    /// The text is empty.
    #[error("empty duration: expected one such as 90s, 1m30s or \"1min 30s\"")]
    Empty,
    /// The duration is negative.
    #[error("duration {text:?} is negative: expected 0s or more")]
    Negative {
        /// The text, at most its first 40 characters.
        text: String,
    },
    /// The unit has no fixed length, or is easily mistaken for another.
    #[error(
        "duration {text:?} has the unit {unit:?}: months and years are not accepted, write m for \
         minutes or count days"
    )]
    Calendar {
        /// The text, at most its first 40 characters.
        text: String,
        /// The unit.
        unit: String,
    },
    /// A number has no unit.
    #[error("duration {text:?} has a number without a unit: expected one such as 90s or 1m30s")]
    MissingUnit {
        /// The text, at most its first 40 characters.
        text: String,
    },
    /// The duration is out of range.
    #[error("duration {text:?} is too long: at most 2562047h47m16.854775807s fit")]
    TooLong {
        /// The text, at most its first 40 characters.
        text: String,
    },
    /// The text is not a duration for another reason.
    #[error("duration {text:?} is not one: expected one such as 90s, 1m30s or \"1min 30s\"")]
    Malformed {
        /// The text, at most its first 40 characters.
        text: String,
    },
}

/// Parses a duration in Go's format (`1m30s`) or in words (`1min 30s`, `2 hours`, `1day`).
///
/// Days (24 h) and weeks are accepted; months and years are not, however they are spelled. Text
/// that is valid in both formats is parsed as Go does.
///
/// # Errors
/// The text is in neither format, is negative, contains months or years, or exceeds the range of
/// Go's durations, about 292 years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let shown = || abbreviated(text);
    match text.parse::<GoDuration>() {
        Ok(duration) => {
            return Duration::try_from(duration)
                .map_err(|_| DurationError::Negative { text: shown() });
        }
        Err(GoDurationError::TooLong { .. }) if !text.starts_with('-') => {
            return Err(DurationError::TooLong { text: shown() });
        }
        Err(_) => {}
    }
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(DurationError::Empty);
    }
    if trimmed.starts_with('-') {
        return Err(DurationError::Negative { text: shown() });
    }
    if let Some(unit) = calendar_unit(trimmed) {
        return Err(DurationError::Calendar { text: shown(), unit: unit.to_owned() });
    }
    // `humantime` skips white space inside a number, and would parse `1 30s` as 130 s.
    if has_number_without_unit(trimmed) {
        return Err(DurationError::MissingUnit { text: shown() });
    }
    let duration = humantime::parse_duration(trimmed).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => DurationError::TooLong { text: shown() },
        _ => DurationError::Malformed { text: shown() },
    })?;
    match GoDuration::try_from(duration) {
        Ok(_) => Ok(duration),
        Err(GoDurationRangeError::Negative(_) | GoDurationRangeError::TooLong(_)) => {
            Err(DurationError::TooLong { text: shown() })
        }
    }
}

fn calendar_unit(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_alphabetic()).find(|word| {
        matches!(*word, "M" | "Y" | "y")
            || ["mon", "month", "months", "mo", "mos", "yr", "yrs", "year", "years"]
                .iter()
                .any(|unit| word.eq_ignore_ascii_case(unit))
    })
}

/// Whether the last word is a bare number, or a number is followed by another.
fn has_number_without_unit(text: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ends_in_digit = |word: &str| word.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    let starts_with_digit = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let follows = words.peek().is_none_or(|next| starts_with_digit(next));
        if follows && (is_number(word) || ends_in_digit(word)) {
            return true;
        }
    }
    false
}
