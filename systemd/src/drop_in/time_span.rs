//! Time spans as systemd's configuration files write them (systemd.time(7)).

use std::time::Duration;

use super::INFINITY;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The units in systemd's order: the first that is a prefix of the text is used.
const UNITS: [(&str, u64); 29] = [
    ("seconds", SECOND),
    ("second", SECOND),
    ("sec", SECOND),
    ("s", SECOND),
    ("minutes", MINUTE),
    ("minute", MINUTE),
    ("min", MINUTE),
    ("months", 2_629_800 * SECOND),
    ("month", 2_629_800 * SECOND),
    ("M", 2_629_800 * SECOND),
    ("msec", 1000),
    ("ms", 1000),
    ("m", MINUTE),
    ("hours", HOUR),
    ("hour", HOUR),
    ("hr", HOUR),
    ("h", HOUR),
    ("days", DAY),
    ("day", DAY),
    ("d", DAY),
    ("weeks", 7 * DAY),
    ("week", 7 * DAY),
    ("w", 7 * DAY),
    ("years", 31_557_600 * SECOND),
    ("year", 31_557_600 * SECOND),
    ("y", 31_557_600 * SECOND),
    ("usec", 1),
    ("us", 1),
    ("µs", 1),
];

/// Parses a time span; a number without a unit is in seconds. `infinity` gives [`INFINITY`].
///
/// Returns `None` where systemd ignores the assignment: no number, a negative number, an unknown
/// unit, or more microseconds than fit into 64 bits.
pub fn parse_time_span(text: &str) -> Option<Duration> {
    let mut rest = text.trim_ascii_start();
    if let Some(after) = rest.strip_prefix("infinity") {
        return after.trim_ascii().is_empty().then_some(INFINITY);
    }
    let mut total: u64 = 0;
    let mut something = false;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return something.then(|| Duration::from_micros(total));
        }
        let (term, after) = parse_term(rest)?;
        // The largest value means "infinity" to systemd and cannot be reached by adding.
        total = total.checked_add(term).filter(|sum| *sum < u64::MAX)?;
        rest = after;
        something = true;
    }
}

/// Parses one number with its unit. Returns it in microseconds, and the rest of the text.
fn parse_term(text: &str) -> Option<(u64, &str)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => {
            let (digits, rest) = split_digits(after);
            // "3.sec" and "3." are refused; ".5" is not.
            if digits.is_empty() {
                return None;
            }
            (digits, rest)
        }
        None if whole.is_empty() => return None,
        None => ("", rest),
    };
    let unit_text = rest.trim_ascii_start();
    let (unit, after) = UNITS
        .iter()
        .find_map(|(name, unit)| unit_text.strip_prefix(name).map(|after| (*unit, after)))
        .unwrap_or((SECOND, unit_text));
    // A number must be followed by space, a unit or the end: "12.34.56" is refused.
    if after.len() == rest.len() && !rest.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut micros = i64::try_from(whole).ok()?.unsigned_abs().checked_mul(unit)?;
    let mut place = unit / 10;
    for digit in fraction.bytes() {
        micros = micros.checked_add(u64::from(digit - b'0') * place)?;
        place /= 10;
    }
    Some((micros, after))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

#[cfg(test)]
mod tests;
