//! Parses the values of options.

use std::time::Duration;

use winddown_shared::{DurationError, LONGEST_NOTICE, WallTime, parse_duration};

/// Parses a duration as Go (`1m30s`) or systemd (`1min 30s`) writes it; at least `0s`.
///
/// # Errors
/// Not a duration, or one in months or years, whose length is not fixed.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const EXAMPLES: &str = "write for example 30s, 1m30s or 1500ms";
    let text = text.trim();
    parse_duration(text).or_else(|error| match (error, humantime::parse_duration(text)) {
        // Each option has its own bound.
        (DurationError::TooLong { .. }, Ok(long)) => Ok(long),
        (DurationError::MissingUnit { .. }, _) if text.bytes().all(|c| c.is_ascii_digit()) => {
            Err(format!("the unit is missing: write {text}s for seconds"))
        }
        (DurationError::Calendar { .. }, _) => {
            Err("months and years have no fixed length: use days (d) or hours (h)".to_owned())
        }
        (_, Err(humantime::DurationError::UnknownUnit { unit, .. })) if !unit.is_empty() => {
            Err(format!("there is no unit {unit:?}: {EXAMPLES}"))
        }
        _ => Err(format!("not a duration: {EXAMPLES}")),
    })
}

/// Parses the number of a boot: 0 or less.
///
/// # Errors
/// The text is not such a number.
pub(super) fn boot(text: &str) -> Result<i32, String> {
    let boot = text.trim().parse().ok().filter(|boot| *boot <= 0);
    boot.ok_or_else(|| "write 0 for this boot, -1 for the one before it, and so on".to_owned())
}

/// Parses a number of lines.
///
/// # Errors
/// The text is not such a number.
pub(super) fn lines(text: &str) -> Result<u64, String> {
    let wrong = |_| "write a number of lines; leave it out for all".to_owned();
    text.trim().parse().map_err(wrong)
}

/// Parses a grace period: whole seconds, from one to what an agent's clock takes.
///
/// # Errors
/// As [`duration`], or out of range, or with a fraction of a second.
pub(super) fn grace(text: &str) -> Result<Duration, String> {
    let grace = duration(text)?;
    if grace < Duration::from_secs(1) {
        return Err("at least 1s is needed".to_owned());
    }
    if grace > LONGEST_NOTICE {
        return Err(format!("at most {}d is possible", LONGEST_NOTICE.as_secs() / 86_400));
    }
    if grace.subsec_nanos() != 0 {
        return Err(format!("only whole seconds are possible: write {}s", grace.as_secs()));
    }
    Ok(grace)
}

/// A time on the command line: relative to now, or on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArgument {
    /// After this duration from now.
    In(Duration),
    /// At this time.
    At(WallTime),
}

/// Parses when the node goes away: a duration of at least one second, or an RFC 3339 time.
///
/// # Errors
/// The text is neither.
pub(super) fn when(text: &str) -> Result<TimeArgument, String> {
    let text = text.trim();
    // No duration begins like a date.
    let is_date = text.as_bytes().get(4) == Some(&b'-') && !text.starts_with('-');
    if is_date {
        let wrong = |_| format!("{text:?} is not a time: write for example 2026-11-20T12:00:00Z");
        return text.parse().map(TimeArgument::At).map_err(wrong);
    }
    let either = |error| format!("{error}, or a time such as 2026-11-20T12:00:00Z");
    duration(text).map_err(either)?;
    ahead(text).map(TimeArgument::In)
}

/// Parses how far ahead a deadline is: from one second to one day.
///
/// # Errors
/// As [`duration`], or the duration is out of range.
pub(super) fn ahead(text: &str) -> Result<Duration, String> {
    let after = duration(text)?;
    if after > Duration::from_secs(24 * 3600) {
        return Err("a deadline is at most 24h ahead".to_owned());
    }
    match after < Duration::from_secs(1) {
        true => Err("a deadline is at least 1s ahead".to_owned()),
        false => Ok(after),
    }
}

/// Parses the delay of a login manager.
///
/// # Errors
/// As [`duration`], or the duration is zero.
pub(super) fn delay(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("more than 0s is needed".to_owned()),
        delay => Ok(delay),
    }
}

/// The namespace of a pod whose name is written without one.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// A pod's name on the command line: `NAME` (in namespace `default`) or `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodArgument {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Whether the namespace is written in front of the name.
    pub is_qualified: bool,
}

/// Parses a pod's name.
///
/// # Errors
/// A part is empty, too long or not a valid Kubernetes name.
pub(super) fn pod_name(text: &str) -> Result<PodArgument, String> {
    let (namespace, name) = text.split_once('/').unwrap_or((DEFAULT_NAMESPACE, text));
    for part in [namespace, name] {
        if !is_name(part) {
            return Err("write NAME or NAMESPACE/NAME: lower-case letters, digits, '-' and '.', \
                        at most 253"
                .to_owned());
        }
    }
    let is_qualified = text.contains('/');
    Ok(PodArgument { namespace: namespace.to_owned(), name: name.to_owned(), is_qualified })
}

/// Whether `text` can be a pod's or a namespace's name.
pub(crate) fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!(bytes.len(), 1..=253)
        && bytes.iter().all(|&byte| inside(byte) || byte == b'-' || byte == b'.')
        && bytes.first().is_some_and(|&byte| inside(byte))
        && bytes.last().is_some_and(|&byte| inside(byte))
}

/// Parses the name of a container.
///
/// # Errors
/// The text cannot be one.
pub(super) fn container_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a container's name has lower-case letters, digits and '-'".to_owned()),
    }
}
