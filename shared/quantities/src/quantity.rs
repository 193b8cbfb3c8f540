//! Kubernetes quantities in exact integer arithmetic.
//!
//! The text form, its rounding and its canonical form match `k8s.io/apimachinery/pkg/api/resource`.
//! Where that package overflows, this one saturates.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

mod parse;
#[cfg(test)]
mod tests;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Nano-units in one milli-unit.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// An amount of a resource, exact to the nano-unit, with the family of suffixes used to format it.
///
/// Parsing rounds a finer amount away from zero to the next nano-unit. It caps a binary quantity
/// (`Ki` to `Ei`) at 2^63-1 units, as Kubernetes does, and any other at about 1.7e29 units, a limit
/// that Kubernetes does not have. Equality, order and hash are numeric: `1Ki` equals `1024`.
/// [`Display`](fmt::Display) writes the canonical form: no fraction, no plus sign, and the largest
/// lossless suffix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: QuantityFormat,
}

/// The family of suffixes used to format a [`Quantity`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuantityFormat {
    /// Powers of 1000: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: none, `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySi,
    /// Powers of 1000 as an exponent: `12e6`.
    DecimalExponent,
}

/// Text that is not a quantity.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuantityError {
    /// The text is empty.
    #[error("empty quantity: expected a number with an optional suffix, such as 500m or 2Gi")]
    Empty,
    /// There is no digit where one is required.
    #[error("quantity {text:?} has no digits: expected a number first, such as 500m or 2Gi")]
    NoDigits {
        /// The text, at most its first 40 characters.
        text: String,
    },
    /// The text after the number is not a suffix.
    #[error(
        "quantity {text:?} has the unknown suffix {suffix:?}: expected none, one of n u m k M G T \
         P E, one of Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
    )]
    UnknownSuffix {
        /// The text, at most its first 40 characters.
        text: String,
        /// The text after the number, at most its first 40 characters.
        suffix: String,
    },
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: QuantityFormat::DecimalSi };

    /// Creates a quantity from a number of units.
    #[must_use]
    pub const fn new(units: i64, format: QuantityFormat) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format }
    }

    /// Creates a quantity from thousandths of a unit.
    #[must_use]
    pub const fn from_milli(milli: i64, format: QuantityFormat) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format }
    }

    /// Creates a quantity from billionths of a unit.
    #[must_use]
    pub const fn from_nanos(nanos: i128, format: QuantityFormat) -> Self {
        Self { nanos, format }
    }

    /// The exact amount in billionths of a unit.
    #[must_use]
    pub const fn as_nanos(self) -> i128 {
        self.nanos
    }

    /// The family of suffixes used to format it.
    #[must_use]
    pub const fn format(self) -> QuantityFormat {
        self.format
    }

    /// The amount in units, rounded away from zero, saturating.
    #[must_use]
    pub fn value(self) -> i64 {
        round_away(self.nanos, NANOS_PER_UNIT)
    }

    /// The amount in thousandths of a unit, rounded away from zero, saturating.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        round_away(self.nanos, NANOS_PER_MILLI)
    }

    /// Whether the amount is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// `Less` below zero, `Equal` at zero, `Greater` above.
    #[must_use]
    pub fn sign(self) -> Ordering {
        self.nanos.cmp(&0)
    }

    /// The sum, or `None` beyond about ±1.7e29 units. Keeps the format of the first nonzero
    /// operand.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let nanos = self.nanos.checked_add(other.nanos)?;
        Some(Self { nanos, format: self.format_beside(other) })
    }

    /// The difference, or `None` beyond about ±1.7e29 units. Keeps the format of the first nonzero
    /// operand.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        let nanos = self.nanos.checked_sub(other.nanos)?;
        Some(Self { nanos, format: self.format_beside(other) })
    }

    /// The sum, saturating at about ±1.7e29 units. Keeps the format of the first nonzero operand.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let nanos = self.nanos.saturating_add(other.nanos);
        Self { nanos, format: self.format_beside(other) }
    }

    /// The difference, saturating at about ±1.7e29 units. Keeps the format of the first nonzero
    /// operand.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        let nanos = self.nanos.saturating_sub(other.nanos);
        Self { nanos, format: self.format_beside(other) }
    }

    fn format_beside(self, other: Self) -> QuantityFormat {
        if self.is_zero() { other.format } else { self.format }
    }

    /// The amount as a count and an exponent of 1024, if that is lossless and the amount is at
    /// least 1024 units in magnitude.
    fn as_binary(self) -> Option<(i128, usize)> {
        let units = self.nanos / NANOS_PER_UNIT;
        if self.nanos % NANOS_PER_UNIT != 0 || (-1023..=1023).contains(&units) {
            return None;
        }
        let (mut count, mut exponent) = (units, 0);
        while count % 1024 == 0 && exponent + 1 < BINARY_SUFFIXES.len() {
            count /= 1024;
            exponent += 1;
        }
        Some((count, exponent))
    }
}

/// Suffixes by power of 1024.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes by power of 1000, from 1000^-3.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

fn round_away(nanos: i128, unit: i128) -> i64 {
    // Only one division, because a 128-bit division is a function call.
    let whole = nanos / unit;
    let away = i128::from(whole * unit != nanos) * nanos.signum();
    let rounded = whole + away;
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == QuantityFormat::BinarySi
            && let Some((count, exponent)) = self.as_binary()
        {
            return write!(f, "{count}{}", BINARY_SUFFIXES[exponent]);
        }
        let (mut count, mut thousands) = (self.nanos, 0_usize);
        while count % 1000 == 0 {
            count /= 1000;
            thousands += 1;
        }
        // There is no suffix above E, so the exponent is written: kubernetes/kubernetes writes
        // 1000E as 1e21 since it stopped dropping the exponent.
        match (self.format, DECIMAL_SUFFIXES.get(thousands)) {
            (QuantityFormat::DecimalSi | QuantityFormat::BinarySi, Some(suffix)) => {
                write!(f, "{count}{suffix}")
            }
            _ if thousands == 3 => write!(f, "{count}"),
            _ if thousands < 3 => write!(f, "{count}e-{}", (3 - thousands) * 3),
            _ => write!(f, "{count}e{}", (thousands - 3) * 3),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts a string, or a number as in YAML without quotes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 500m or 2Gi")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::new(units, QuantityFormat::DecimalSi))
    }

    fn visit_u64<E: serde::de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nanos(i128::from(units) * NANOS_PER_UNIT, QuantityFormat::DecimalSi))
    }

    fn visit_f64<E: serde::de::Error>(self, units: f64) -> Result<Quantity, E> {
        // The shortest decimal representation of this number is what the document contained.
        units.to_string().parse().map_err(E::custom)
    }
}
