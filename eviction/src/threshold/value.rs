//! Reading one threshold or one minimum reclaim.

use std::cmp::Ordering;
use std::num::ParseFloatError;

use winddown_shared::{Quantity, QuantityError};

use super::ThresholdValue;

/// A value that cannot be one.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ValueError {
    /// Neither a quantity nor a percentage.
    #[error(
        "`{text}` is not a quantity: write a quantity such as 100Mi, or a percentage such as 10%"
    )]
    Quantity {
        /// What was written, at most its first 40 characters, what is not printable as escapes.
        text: String,
        /// Why not.
        #[source]
        source: QuantityError,
    },
    /// It ends with a percent sign and is no percentage.
    #[error(
        "`{text}` is not a percentage: write a quantity such as 100Mi, or a percentage such as 10%"
    )]
    Percentage {
        /// What was written, at most its first 40 characters, what is not printable as escapes.
        text: String,
        /// Why not; none when it is not written in digits.
        #[source]
        source: Option<ParseFloatError>,
    },
    /// Less than nothing, nothing at all, or more than everything.
    #[error("`{text}` is out of range: write {allowed}")]
    Range {
        /// What was written, at most its first 40 characters, what is not printable as escapes.
        text: String,
        /// What can be written.
        allowed: &'static str,
    },
}

/// Reads a threshold: a quantity above 0, or a percentage of the capacity. `None`: `0%` or `100%`,
/// which switch it off.
///
/// # Errors
/// It is neither, or out of range.
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

/// Reads a minimum reclaim: a quantity of 0 or more, or a percentage of the capacity above 0.
///
/// # Errors
/// It is neither, or out of range.
pub fn parse_minimum_reclaim(text: &str) -> Result<ThresholdValue, ValueError> {
    let value = parse(text)?;
    let fits = match value {
        ThresholdValue::Share(share) => share > 0.0,
        ThresholdValue::Quantity(quantity) => !quantity.is_negative(),
    };
    if fits { Ok(value) } else { Err(out_of_range(text, "more than 0%, or 0 or more")) }
}

/// The kubelet takes any number of percent signs, and so do we.
fn parse(text: &str) -> Result<ThresholdValue, ValueError> {
    if !text.ends_with('%') {
        return match text.parse::<Quantity>() {
            Ok(quantity) => Ok(ThresholdValue::Quantity(quantity)),
            Err(source) => Err(ValueError::Quantity { text: abbreviated(text), source }),
        };
    }
    let number = text.trim_end_matches('%');
    // `NaN` and `inf` would pass every comparison, and a number that is too large is `inf`.
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

/// Quoted input is escaped, so that it stays on its line.
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
