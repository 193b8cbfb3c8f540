//! Parses the content of a notice file.

use std::str::FromStr;
use std::time::Duration;

use winddown_shared::{WallTime, parse_duration};

use crate::When;

/// The most words in a duration, as in `1h 2min 3s 4ms`.
const LONGEST_DURATION: usize = 4;

/// Punctuation accepted between the deadline and the text.
const BETWEEN: [char; 2] = [':', ','];

/// Why a file has no valid deadline.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ContentError {
    /// The file is empty.
    #[error("it is empty: write a deadline such as 90s or 2026-11-20T12:00:00Z, then a text")]
    Empty,
    /// The first word is neither a time nor a duration.
    ///
    /// The word is not quoted, because the file may never have been meant as a notice.
    #[error(
        "its first word is no deadline: write a duration such as 90s or a time such as \
         2026-11-20T12:00:00Z"
    )]
    NoDeadline,
}

/// Parses the deadline and the text after it. A duration counts from when the file was written.
pub(super) fn parse(content: &str) -> Result<(When, &str), ContentError> {
    let content = content.trim_start_matches('\u{feff}').trim();
    let word = content.split_whitespace().next().ok_or(ContentError::Empty)?;
    let word = word.trim_end_matches(BETWEEN);
    if let Ok(at) = WallTime::from_str(word) {
        return Ok((When::At(at), after(content, word.len())));
    }
    match parse_duration(word) {
        Ok(first) => {
            let (duration, end) = longest_duration(content).unwrap_or((first, word.len()));
            Ok((When::In(duration), after(content, end)))
        }
        Err(_) => Err(ContentError::NoDeadline),
    }
}

/// Returns the sum of the leading words that are durations, each in smaller units than the one before (`1min 30s`), and the
/// offset where they end. Of `300s 5min of battery`, the second is text.
fn longest_duration(content: &str) -> Option<(Duration, usize)> {
    let line = content.lines().next()?;
    let (mut sum, mut end, mut unit) = (None, 0, Duration::MAX);
    for word in line.split_whitespace().take(LONGEST_DURATION) {
        let digits = word.trim_end_matches(BETWEEN);
        let Ok(part) = parse_duration(digits) else { break };
        if part >= unit {
            break;
        }
        unit = unit_of(digits);
        end += line.get(end..)?.find(word)? + word.len();
        sum = Some(sum.map_or(part, |sum: Duration| sum.saturating_add(part)));
        if word.ends_with(BETWEEN) {
            break;
        }
    }
    Some((sum?, end))
}

/// The smallest unit of a duration: a second of `1m30s`.
fn unit_of(duration: &str) -> Duration {
    let unit = duration.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let unit = unit.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    parse_duration(&format!("1{unit}")).unwrap_or_default()
}

/// Returns the text after the deadline, without the punctuation in between.
fn after(content: &str, end: usize) -> &str {
    let text = content.get(end..).unwrap_or_default();
    text.trim_start_matches(|c: char| c.is_whitespace() || c == '-' || BETWEEN.contains(&c))
}

#[cfg(test)]
mod tests;
