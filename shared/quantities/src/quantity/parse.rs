//! Parser for quantities.

use super::{NANOS_PER_UNIT, Quantity, QuantityError, QuantityFormat};
use crate::{abbreviated, split_digits};

/// The factor that a suffix stands for.
enum Scale {
    /// A power of 10.
    Decimal(i64, QuantityFormat),
    /// A power of 2.
    Binary(u32),
}

/// The cap of a binary quantity in nano-units, in either direction.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (negative, number) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, after) = split_digits(number);
    let (fraction, suffix) = after.strip_prefix('.').map_or(("", after), split_digits);
    let scale = scale_of(suffix).ok_or_else(|| reject_suffix(text, number, suffix))?;
    if whole.is_empty() && fraction.is_empty() && !reads_as_zero_without_digits(&scale) {
        return Err(QuantityError::NoDigits { text: abbreviated(text) });
    }
    let (nanos, format) = match scale {
        Scale::Decimal(exponent, format) => (decimal_nanos(whole, fraction, exponent), format),
        Scale::Binary(bits) => {
            let nanos = binary_nanos(whole, fraction, bits);
            // Less than one unit cannot be formatted in powers of 1024.
            let is_small = nanos < NANOS_PER_UNIT;
            let format =
                if is_small { QuantityFormat::DecimalSi } else { QuantityFormat::BinarySi };
            (nanos, format)
        }
    };
    Ok(Quantity { nanos: if negative { -nanos } else { nanos }, format })
}

fn scale_of(suffix: &str) -> Option<Scale> {
    let decimal = |exponent| Some(Scale::Decimal(exponent, QuantityFormat::DecimalSi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Scale::Binary(10)),
        "Mi" => Some(Scale::Binary(20)),
        "Gi" => Some(Scale::Binary(30)),
        "Ti" => Some(Scale::Binary(40)),
        "Pi" => Some(Scale::Binary(50)),
        "Ei" => Some(Scale::Binary(60)),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(Scale::Decimal(exponent, QuantityFormat::DecimalExponent))
        }
    }
}

/// Kubernetes accepts `G` as zero but not `Pi`. API objects may contain whatever it accepts.
fn reads_as_zero_without_digits(scale: &Scale) -> bool {
    match scale {
        Scale::Decimal(exponent, _) => *exponent >= -9,
        Scale::Binary(bits) => *bits < 50,
    }
}

/// Nano-units of `whole.fraction` times 10^`exponent`, rounded up, saturating.
fn decimal_nanos(whole: &str, fraction: &str, exponent: i64) -> i128 {
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    if let (Some(number), true) = (small(whole), fraction.is_empty())
        && let Ok(exponent @ 0..=27) = u32::try_from(exponent.saturating_add(9))
    {
        return number.saturating_mul(10_i128.pow(exponent));
    }
    // The number of digits, with zeros appended, left of the decimal point when counting nano-units.
    let point = length(whole).saturating_add(exponent).saturating_add(9);
    let mut nanos: i128 = 0;
    let mut inexact = false;
    let mut place = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if place < point {
            nanos = append_digit(nanos, digit);
        } else {
            inexact |= digit != b'0';
        }
        place += 1;
    }
    if nanos != 0 && place < point {
        let shift = u32::try_from(point - place).unwrap_or(u32::MAX);
        nanos = 10_i128
            .checked_pow(shift)
            .and_then(|factor| nanos.checked_mul(factor))
            .unwrap_or(i128::MAX);
    }
    nanos.saturating_add(i128::from(inexact))
}

/// Nano-units of `whole.fraction` times 2^`bits`, rounded up, capped.
fn binary_nanos(whole: &str, fraction: &str, bits: u32) -> i128 {
    let unit = NANOS_PER_UNIT << bits;
    let count = small(whole).unwrap_or_else(|| whole.bytes().fold(0, append_digit));
    if fraction.is_empty() {
        return count.saturating_mul(unit).min(BINARY_CAP);
    }
    // Horner's scheme from the last digit. Flooring at every step is exact, because the part that
    // is cut off is less than one and is only divided by ten.
    let mut part: i128 = 0;
    let mut inexact = false;
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * unit + part;
        part = sum / 10;
        inexact |= sum % 10 != 0;
    }
    let part = part + i128::from(inexact);
    count.saturating_mul(unit).saturating_add(part).min(BINARY_CAP)
}

/// Parses a number of at most 18 digits, as nearly all quantities have, without 128-bit arithmetic.
fn small(digits: &str) -> Option<i128> {
    let append = |number: i64, digit: u8| number * 10 + i64::from(digit - b'0');
    (digits.len() <= 18).then(|| i128::from(digits.bytes().fold(0, append)))
}

fn append_digit(number: i128, digit: u8) -> i128 {
    /// The largest number for which ten times the number plus nine fits.
    const MAX_BEFORE_DIGIT: i128 = i128::MAX / 10 - 1;
    if number > MAX_BEFORE_DIGIT { i128::MAX } else { number * 10 + i128::from(digit - b'0') }
}

fn reject_suffix(text: &str, number: &str, suffix: &str) -> QuantityError {
    let text = abbreviated(text);
    if number.len() == suffix.len() {
        return QuantityError::NoDigits { text };
    }
    QuantityError::UnknownSuffix { text, suffix: abbreviated(suffix) }
}
