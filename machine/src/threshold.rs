//! How little of a resource has to be left before pods are evicted for it.

use std::str::FromStr;

use winddown_shared::{Quantity, QuantityError};

/// An eviction threshold, as `evictionHard` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// `0%` or `100%`: there is none.
    Off,
    /// This part of what there is, 0 to 1. In the kubelet's 32-bit arithmetic: 10 % of 16 GiB are
    /// 26 bytes more than a tenth.
    Part(f32),
    /// This many base units.
    Amount(i64),
}

/// Text that is no threshold.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// A percentage that is none, or not between 0 and 100.
    #[error("{text:?} is no percentage from 0% to 100%")]
    Part {
        /// What was read.
        text: String,
    },
    /// Neither a percentage nor a quantity above 0.
    #[error("{text:?} is no threshold: expected a quantity above 0 such as 100Mi, or a percentage")]
    Amount {
        /// What was read.
        text: String,
        /// Why it is no quantity; none when it is one that is not above 0.
        #[source]
        source: Option<QuantityError>,
    },
}

impl Threshold {
    /// The threshold in base units, where there are `capacity` of them. Never below 0.
    #[must_use]
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Off => 0,
            Self::Part(part) => truncated_product(capacity, part).max(0),
            Self::Amount(amount) => amount.max(0),
        }
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let Some(number) = text.strip_suffix('%') else { return amount(text) };
        if matches!(text, "0%" | "100%") {
            return Ok(Self::Off);
        }
        let part = number.parse::<f32>().map(|percent| percent / 100.0);
        match part {
            Ok(part) if (0.0..=1.0).contains(&part) => Ok(Self::Part(part)),
            _ => Err(ThresholdError::Part { text: text.to_owned() }),
        }
    }
}

fn amount(text: &str) -> Result<Threshold, ThresholdError> {
    let wrong = |source| ThresholdError::Amount { text: text.to_owned(), source };
    let quantity: Quantity = text.parse().map_err(|error| wrong(Some(error)))?;
    match quantity.value() {
        amount if amount > 0 => Ok(Threshold::Amount(amount)),
        _ => Err(wrong(None)),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the kubelet's arithmetic; the product is at most the capacity, and a cast saturates"
)]
fn truncated_product(capacity: i64, part: f32) -> i64 {
    (capacity as f64 * f64::from(part)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(text: &str) -> Threshold {
        text.parse().unwrap()
    }

    #[test]
    fn a_part_is_reckoned_with_the_kubelets_rounding() {
        assert_eq!(threshold("10%").of(16 << 30), 1_717_986_944);
        assert_eq!(threshold("5%").of(1000), 50);
        assert_eq!(threshold("0.0%").of(1000), 0);
        assert_eq!(threshold("50%").of(i64::MAX), 1 << 62);
    }

    #[test]
    fn an_amount_is_what_it_is() {
        assert_eq!(threshold("100Mi").of(1), 100 << 20);
        assert_eq!(threshold("1").of(1000), 1);
    }

    #[test]
    fn none_and_all_of_it_switch_the_threshold_off() {
        assert_eq!(threshold("0%"), Threshold::Off);
        assert_eq!(threshold("100%"), Threshold::Off);
        assert_eq!(Threshold::Off.of(1000), 0);
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_its_text() {
        for text in ["", "0", "-1", "110%", "-1%", "NaN%", "%", "ten%", "10%%", "1x"] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
