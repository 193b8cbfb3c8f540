//! Parsing of thresholds and minimum reclaims.

use std::cmp::Ordering;
use std::num::ParseFloatError;

use winddown_shared::{Quantity, QuantityError};

use super::ThresholdValue;

/// Why a threshold or a minimum reclaim is invalid.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ValueError {
    /// The text is not a quantity.
    #[error(
        "`{text}` is not a quantity: write a quantity such as 100Mi, or a percentage such as 10%"
    )]
    Quantity {
        /// The first 40 characters of the text, with unprintable characters escaped.
        text: String,
        /// The reason.
        source: QuantityError,
    },
    /// The text ends with a percent sign but is not a percentage.
    #[error(
        "`{text}` is not a percentage: write a quantity such as 100Mi, or a percentage such as 10%"
    )]
    Percentage {
        /// The first 40 characters of the text, with unprintable characters escaped.
        text: String,
        /// The reason; none if the number is not finite or not written in digits.
        source: Option<ParseFloatError>,
    },
    /// The value is negative, zero, or more than the maximum.
    #[error("`{text}` is out of range: write {allowed}")]
    Range {
        /// The first 40 characters of the text, with unprintable characters escaped.
        text: String,
        /// The allowed range.
        allowed: &'static str,
    },
}

/// Parses a threshold: a quantity above 0, or a percentage of the capacity. Returns `None` for `0%` and `100%`, which
/// disable it.
///
/// # Errors
/// The text is neither, or out of range.
pub fn parse_threshold(text: &str) -> Result<Option<ThresholdValue>, ValueError> {
    if matches!(text, "0%" | "100%") {
        return Ok(None);
    }
    let value = parse(text)?;
    let fits = match value {
        ThresholdValue::Share(share) => (0.0..=1.0).contains(&share),
        ThresholdValue::Quantity(quantity) => quantity.sign() == Ordering::Greater,
    };
    match fits {
        true => Ok(Some(value)),
        false => Err(out_of_range(text, "0% to 100%, or more than 0")),
    }
}

/// Parses a minimum reclaim: a quantity of 0 or more, or a percentage of the capacity above 0.
///
/// # Errors
/// The text is neither, or out of range.
pub fn parse_minimum_reclaim(text: &str) -> Result<ThresholdValue, ValueError> {
    let value = parse(text)?;
    let fits = match value {
        ThresholdValue::Share(share) => share > 0.0,
        ThresholdValue::Quantity(quantity) => !quantity.is_negative(),
    };
    if fits { Ok(value) } else { Err(out_of_range(text, "more than 0%, or 0 or more")) }
}

/// Parses a quantity or a percentage. The kubelet accepts any number of percent signs, and so does this.
fn parse(text: &str) -> Result<ThresholdValue, ValueError> {
    if !text.ends_with('%') {
        return match text.parse::<Quantity>() {
            Ok(quantity) => Ok(ThresholdValue::Quantity(quantity)),
            Err(source) => Err(ValueError::Quantity { text: abbreviated(text), source }),
        };
    }
    let number = text.trim_end_matches('%');
    // `NaN` and `inf` parse as numbers, and so does a number that is too large, as `inf`.
    let in_digits = number.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    match number.parse::<f32>() {
        Ok(percent) if in_digits && percent.is_finite() => {
            Ok(ThresholdValue::Share(percent / 100.0))
        }
        Ok(_) => Err(ValueError::Percentage { text: abbreviated(text), source: None }),
        Err(source) => {
            Err(ValueError::Percentage { text: abbreviated(text), source: Some(source) })
        }
    }
}

fn out_of_range(text: &str, allowed: &'static str) -> ValueError {
    ValueError::Range { text: abbreviated(text), allowed }
}

/// Escapes quoted input, so that it stays on its line.
fn abbreviated(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(40) {
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}
