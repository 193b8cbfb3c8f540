//! Go's `time.ParseDuration`.

use super::{GoDuration, GoDurationError, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND};
use crate::{abbreviated, split_digits};

/// The magnitude of the most negative duration.
const LIMIT: u64 = 1 << 63;

pub(super) fn parse(text: &str) -> Result<GoDuration, GoDurationError> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(GoDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(GoDurationError::Empty);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, after) = term(text, rest)?;
        // Twice the limit is 2^64, which wraps to 0 in Go and is accepted there.
        total = total
            .checked_add(nanos)
            .filter(|&total| total <= LIMIT)
            .ok_or_else(|| too_long(text))?;
        rest = after;
    }
    if negative {
        return Ok(GoDuration::from_nanos(0_i64.wrapping_sub_unsigned(total)));
    }
    i64::try_from(total).map(GoDuration::from_nanos).map_err(|_| too_long(text))
}

/// Parses a number and its unit; returns the nanoseconds and the remaining text.
fn term<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), GoDurationError> {
    let (whole, after) = split_digits(rest);
    let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        let (text, at) = (abbreviated(text), abbreviated(rest));
        return Err(GoDurationError::NumberExpected { text, at });
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (name, after) = after.split_at(end);
    let unit = unit_of(text, name)?;
    let count = leading_integer(whole).ok_or_else(|| too_long(text))?;
    let nanos = count.checked_mul(unit).filter(|&nanos| nanos <= LIMIT);
    let nanos = nanos.and_then(|nanos| nanos.checked_add(fraction_nanos(fraction, unit)));
    match nanos {
        Some(nanos) if nanos <= LIMIT => Ok((nanos, after)),
        _ => Err(too_long(text)),
    }
}

fn unit_of(text: &str, name: &str) -> Result<u64, GoDurationError> {
    match name {
        "ns" => Ok(1),
        // The micro sign and the Greek letter look alike.
        "us" | "\u{b5}s" | "\u{3bc}s" => Ok(MICROSECOND),
        "ms" => Ok(MILLISECOND),
        "s" => Ok(SECOND),
        "m" => Ok(MINUTE),
        "h" => Ok(HOUR),
        "" => Err(GoDurationError::MissingUnit { text: abbreviated(text) }),
        _ => Err(GoDurationError::UnknownUnit { text: abbreviated(text), unit: abbreviated(name) }),
    }
}

fn leading_integer(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0_u64, |number, digit| {
        let number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        (number <= LIMIT).then_some(number)
    })
}

/// Go computes this part in floating point, so identical results require the same operations.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative and below one unit, which is at most 3.6e12"
)]
fn fraction_nanos(digits: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        // Go drops the digits that do not fit in 63 bits.
        let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|&next| next <= LIMIT) else { break };
        number = next;
        scale *= 10.0;
    }
    if number == 0 {
        return 0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

fn too_long(text: &str) -> GoDurationError {
    GoDurationError::TooLong { text: abbreviated(text) }
}
