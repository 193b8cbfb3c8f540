//! What was measured, in a unit, and whether it is what we are after.

use std::fmt;
use std::time::Duration;

/// A figure in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    value: f64,
    unit: Unit,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Millis,
    Micros,
    /// A million bytes, which is what the targets are in.
    Megabytes,
    Bytes,
    Percent,
    PerSecond,
    Times,
    Count,
}

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// Less than this.
    Below(Figure),
    /// More than this.
    Above(Figure),
}

/// Milliseconds.
pub(crate) fn millis(duration: Duration) -> Figure {
    Figure { value: duration.as_secs_f64() * 1e3, unit: Unit::Millis }
}

/// Microseconds.
pub(crate) fn micros(duration: Duration) -> Figure {
    Figure { value: duration.as_secs_f64() * 1e6, unit: Unit::Micros }
}

/// Memory, in millions of bytes.
pub(crate) fn megabytes(bytes: u64) -> Figure {
    Figure { value: exact(bytes) / 1e6, unit: Unit::Megabytes }
}

/// Memory of something small.
pub(crate) fn bytes(bytes: u64) -> Figure {
    Figure { value: exact(bytes), unit: Unit::Bytes }
}

/// Hundredths.
pub(crate) fn percent(percent: f64) -> Figure {
    Figure { value: percent, unit: Unit::Percent }
}

/// How often in a second.
pub(crate) fn per_second(value: f64) -> Figure {
    Figure { value, unit: Unit::PerSecond }
}

/// How many times as much.
pub(crate) fn times(value: f64) -> Figure {
    Figure { value, unit: Unit::Times }
}

/// A number of things.
pub(crate) fn count(value: u64) -> Figure {
    Figure { value: exact(value), unit: Unit::Count }
}

/// The middle one.
pub(crate) fn median(mut runs: Vec<Duration>) -> Duration {
    runs.sort_unstable();
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}

/// What nine in ten of the figures do not exceed, which are in the same unit; of fewer than ten, the largest.
pub(crate) fn nine_in_ten(mut figures: Vec<Figure>) -> Option<Figure> {
    figures.sort_by(|a, b| a.value.total_cmp(&b.value));
    let at = (figures.len() * 9).div_ceil(10);
    figures.get(at.checked_sub(1)?).copied()
}

/// What is counted here is far below where a float would lose units that show.
#[allow(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn exact(value: u64) -> f64 {
    value as f64
}

// === impl Figure ===

impl Figure {
    /// How many times as large as `other`, which is in the same unit.
    pub(crate) fn over(self, other: Self) -> f64 {
        self.value / other.value.max(f64::MIN_POSITIVE)
    }

    /// So many times as much.
    pub(crate) fn times(self, times: f64) -> Self {
        Self { value: self.value * times, ..self }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        // As many digits as tell two runs apart.
        let places = match value.abs() {
            ..10.0 => 2,
            10.0..100.0 => 1,
            _ => 0,
        };
        let text = match self.unit {
            Unit::Millis => format!("{value:.places$} ms"),
            Unit::Micros => format!("{value:.places$} µs"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Percent => format!("{value:.3} %"),
            Unit::PerSecond => format!("{value:.places$} / s"),
            Unit::Times => format!("{value:.places$} ×"),
            Unit::Count => format!("{value:.0}"),
        };
        f.pad(&text)
    }
}

// === impl Target ===

impl Target {
    /// How much of what is allowed was used; above 1 it was missed.
    pub(crate) fn used_by(self, figure: Figure) -> f64 {
        match self {
            Self::Below(most) => figure.over(most),
            Self::Above(least) => least.over(figure),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Below(most) => format!("< {most}"),
            Self::Above(least) => format!("> {least}"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Target, count, megabytes, millis, times};

    #[test]
    fn a_figure_has_as_many_digits_as_matter() {
        assert_eq!(millis(Duration::from_micros(2346)).to_string(), "2.35 ms");
        assert_eq!(millis(Duration::from_micros(22_440)).to_string(), "22.4 ms");
        assert_eq!(millis(Duration::from_micros(2_059_940)).to_string(), "2060 ms");
        assert_eq!(megabytes(16_000_000).to_string(), "16.0 MB");
        assert_eq!(count(10_707_916).to_string(), "10707916");
    }

    #[test]
    fn the_part_of_a_target_that_was_used_says_whether_it_was_missed() {
        let most = Target::Below(megabytes(16_000_000));
        assert!(most.used_by(megabytes(15_999_999)) < 1.0);
        assert!(most.used_by(megabytes(16_000_001)) > 1.0);
        let least = Target::Above(times(500.0));
        assert!(least.used_by(times(1000.0)) < 0.51);
        assert!(least.used_by(times(499.0)) > 1.0);
        assert_eq!((most.to_string(), least.to_string()), ("< 16.0 MB".into(), "> 500 ×".into()));
    }
}
