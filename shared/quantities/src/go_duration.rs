//! Durations in Go's format, and as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

mod lenient;
mod parse;
#[cfg(test)]
mod tests;

pub use lenient::{DurationError, parse_duration};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A duration like Go's `time.Duration`: signed nanoseconds, about ±292 years.
///
/// Parses and formats exactly like `time.ParseDuration` and `Duration.String`: `1m30s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Text that is not a Go duration.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum GoDurationError {
    /// The text is empty, or only a sign.
    #[error("empty duration: expected a number with a unit, such as 90s or 1m30s")]
    Empty,
    /// There is a unit, or something else, where a number is required.
    #[error("duration {text:?}: expected a number at {at:?}, as in 90s or 1m30s")]
    NumberExpected {
        /// The text, at most its first 40 characters.
        text: String,
        /// The rest of the text, from where a number is required.
        at: String,
    },
    /// A number has no unit.
    #[error("duration {text:?} has a number without a unit: expected ns, us, ms, s, m or h")]
    MissingUnit {
        /// The text, at most its first 40 characters.
        text: String,
    },
    /// A unit is not one of Go's.
    #[error("duration {text:?} has the unknown unit {unit:?}: expected ns, us, ms, s, m or h")]
    UnknownUnit {
        /// The text, at most its first 40 characters.
        text: String,
        /// The unit, at most its first 40 characters.
        unit: String,
    },
    /// The duration is out of range.
    #[error("duration {text:?} is too long: at most 2562047h47m16.854775807s fit")]
    TooLong {
        /// The text, at most its first 40 characters.
        text: String,
    },
}

/// A duration that is out of the range of a conversion.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GoDurationRangeError {
    /// A negative duration cannot be converted to an unsigned one.
    #[error("duration {0} is negative: expected 0s or more")]
    Negative(GoDuration),
    /// The duration exceeds Go's signed 64 bits of nanoseconds.
    #[error("duration of {} s is too long: at most 2562047h47m16.854775807s fit", .0.as_secs())]
    TooLong(Duration),
}

impl GoDuration {
    /// A duration of zero.
    pub const ZERO: Self = Self(0);

    /// Creates a duration from nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The duration in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

impl TryFrom<GoDuration> for Duration {
    type Error = GoDurationRangeError;

    fn try_from(duration: GoDuration) -> Result<Self, GoDurationRangeError> {
        match u64::try_from(duration.0) {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => Err(GoDurationRangeError::Negative(duration)),
        }
    }
}

impl TryFrom<Duration> for GoDuration {
    type Error = GoDurationRangeError;

    fn try_from(duration: Duration) -> Result<Self, GoDurationRangeError> {
        match i64::try_from(duration.as_nanos()) {
            Ok(nanos) => Ok(Self(nanos)),
            Err(_) => Err(GoDurationRangeError::TooLong(duration)),
        }
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => write_decimal(f, nanos, MICROSECOND, "µs"),
            MILLISECOND..SECOND => write_decimal(f, nanos, MILLISECOND, "ms"),
            _ => {
                let (hours, minutes) = (nanos / HOUR, nanos / MINUTE % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if nanos >= MINUTE {
                    write!(f, "{minutes}m")?;
                }
                write_decimal(f, nanos % MINUTE, SECOND, "s")
            }
        }
    }
}

/// Writes `nanos` in units of `unit` with as many decimals as needed.
fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    let mut rest = nanos % unit;
    if rest != 0 {
        f.write_str(".")?;
    }
    let mut place = unit;
    while rest != 0 {
        place /= 10;
        write!(f, "{}", rest / place)?;
        rest %= place;
    }
    f.write_str(name)
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, GoDurationError> {
        parse::parse(text)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(GoDurationVisitor)
    }
}

struct GoDurationVisitor;

impl Visitor<'_> for GoDurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 90s or 1m30s")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }
}
