//! Amounts and times.

use std::error::Error;
use std::time::Duration;

use winddown_eviction::{ThresholdValue, parse_minimum_reclaim, parse_soft_grace, parse_threshold};
use winddown_shared::{GoDuration, Quantity, error_chain, parse_duration};
use winddown_systemd::drop_in;

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// What is shown to people fits a line and cannot move a cursor, whatever they wrote.
pub(crate) fn shown(error: &dyn Error) {
    let shown = error_chain(error);
    assert!(!shown.is_empty() && shown.chars().count() <= 1600, "{shown:?}");
    assert!(!shown.contains(['\n', '\u{1b}']), "{shown:?}");
}

pub(crate) fn quantities(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let quantity: Quantity = match text.parse() {
        Ok(quantity) => quantity,
        Err(error) => return shown(&error),
    };
    let canonical = quantity.to_string();
    let again: Result<Quantity, _> = canonical.parse();
    assert!(again.is_ok(), "{text:?} is written as {canonical:?}, which is none");
    let again = again.unwrap_or(Quantity::ZERO);
    assert_eq!(again.as_nanos(), quantity.as_nanos(), "{text:?} is written as {canonical:?}");
    // A number alone is decimal when it is read again, also one that had a binary suffix. So it is in Go.
    let is_alone = canonical.ends_with(|last: char| last.is_ascii_digit());
    let settled = if is_alone { again.to_string() } else { canonical };
    let third = settled.parse().map(|quantity: Quantity| quantity.to_string());
    assert_eq!(third, Ok(settled), "the canonical form of {text:?} is itself");
    // Rounded away from zero, so never less than there is, and never of another sign.
    assert!(
        i128::from(quantity.value()).unsigned_abs()
            <= quantity.as_nanos().unsigned_abs().div_ceil(1_000_000_000)
    );
    assert!(quantity.is_zero() || (quantity.value() < 0) == quantity.is_negative());
    assert_eq!(quantity.checked_sub(quantity).map(Quantity::is_zero), Some(true));
    let double = quantity.saturating_add(quantity);
    assert!(quantity.is_negative() || double.as_nanos() >= quantity.as_nanos(), "{text:?}");
}

pub(crate) fn durations(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match text.parse::<GoDuration>() {
        Ok(duration) => {
            let canonical = duration.to_string();
            assert_eq!(canonical.parse(), Ok(duration), "{text:?} is written as {canonical:?}");
            let lenient = parse_duration(text).ok();
            assert_eq!(lenient, Duration::try_from(duration).ok(), "{text:?} means one thing");
        }
        Err(error) => shown(&error),
    }
    match parse_duration(text) {
        Ok(duration) => {
            let go = GoDuration::try_from(duration).map(|go| go.to_string());
            let again = go.ok().and_then(|text| parse_duration(&text).ok());
            assert_eq!(again, Some(duration), "{text:?}");
        }
        Err(error) => shown(&error),
    }
    if let Some(span) = drop_in::parse_time_span(text) {
        // In two terms: systemd takes no number beyond 63 bits, and spans of 64.
        let written = format!("{}s {}us", span.as_secs(), span.subsec_micros());
        let again = drop_in::parse_time_span(&written);
        assert!(again == Some(span) || span == drop_in::INFINITY, "{text:?}: {span:?}");
        let padded = drop_in::parse_time_span(&format!(" {text} "));
        assert_eq!(padded, Some(span), "blanks around {text:?} change nothing");
    }
    // Laid into a file, it is a value and nothing else: no section, no second key.
    let line = text.lines().next().unwrap_or_default().trim_end_matches('\r');
    let in_file = drop_in::inhibit_delay(&format!("[Login]\nInhibitDelayMaxSec={line}\n"));
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    if backslashes % 2 == 0 {
        assert_eq!(in_file, drop_in::parse_time_span(line.trim_ascii()), "{line:?}");
    }
}

pub(crate) fn thresholds(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match parse_threshold(text) {
        Ok(Some(ThresholdValue::Share(share))) => {
            assert!((0.0..=1.0).contains(&share), "{text:?} is {share}");
        }
        Ok(Some(ThresholdValue::Quantity(quantity))) => {
            assert!(!quantity.is_zero() && !quantity.is_negative(), "{text:?}");
        }
        Ok(None) => assert!(matches!(text, "0%" | "100%")),
        Err(error) => shown(&error),
    }
    match parse_minimum_reclaim(text) {
        Ok(ThresholdValue::Share(share)) => assert!(share > 0.0, "{text:?} is {share}"),
        Ok(ThresholdValue::Quantity(quantity)) => assert!(!quantity.is_negative(), "{text:?}"),
        Err(error) => shown(&error),
    }
    if let Err(error) = parse_soft_grace(text) {
        shown(&error);
    }
}
