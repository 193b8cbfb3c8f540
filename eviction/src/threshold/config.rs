//! The four maps of a configuration, and the thresholds they make.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use winddown_shared::{GoDuration, GoDurationError, error_chain};

use super::value::{ValueError, parse_minimum_reclaim, parse_threshold};
use super::{Threshold, ThresholdValue};
use crate::signal::{Signal, UnknownSignal};

/// Thresholds as a configuration writes them: signal to text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ThresholdConfig {
    /// At once.
    #[serde(rename = "evictionHard")]
    pub hard: BTreeMap<String, String>,
    /// After a grace.
    #[serde(rename = "evictionSoft")]
    pub soft: BTreeMap<String, String>,
    /// The grace of each soft one, as Go writes durations.
    #[serde(rename = "evictionSoftGracePeriod")]
    pub soft_grace: BTreeMap<String, String>,
    /// How much is to be regained, of hard ones and soft ones.
    #[serde(rename = "evictionMinimumReclaim")]
    pub minimum_reclaim: BTreeMap<String, String>,
}

/// Why thresholds cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ThresholdError {
    /// A name that is no signal.
    #[error("{field}")]
    Signal {
        /// The field.
        field: &'static str,
        /// The name.
        #[source]
        source: UnknownSignal,
    },
    /// A value that cannot be one.
    #[error("{field}[{signal}]")]
    Value {
        /// The field.
        field: &'static str,
        /// The entry.
        signal: Signal,
        /// What is wrong.
        #[source]
        source: ValueError,
    },
    /// A grace that is no duration.
    #[error("evictionSoftGracePeriod[{signal}]")]
    Grace {
        /// The entry.
        signal: Signal,
        /// What is wrong.
        #[source]
        source: GoDurationError,
    },
    /// A grace below zero.
    #[error("evictionSoftGracePeriod[{signal}]: {grace} is negative: write 0s or more")]
    NegativeGrace {
        /// The entry.
        signal: Signal,
        /// What was written.
        grace: GoDuration,
    },
    /// A soft threshold without a grace.
    #[error(
        "evictionSoft[{signal}]: needs a grace period: add evictionSoftGracePeriod[{signal}], for \
         example 1m30s"
    )]
    GraceMissing {
        /// The entry.
        signal: Signal,
    },
}

/// A soft grace that cannot be one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftGraceError {
    /// No duration of this kind.
    #[error(transparent)]
    Duration(winddown_shared::DurationError),
    /// None at all.
    #[error("needs more than 0s: without grace it is a hard threshold, move it to evictionHard")]
    Zero,
}

/// Reads the grace of a soft threshold more strictly than [`ThresholdConfig::thresholds`] does, in
/// Go's form or in words: a grace of zero would make the threshold a hard one.
///
/// # Errors
/// It is no duration, or no time at all.
pub fn parse_soft_grace(text: &str) -> Result<Duration, SoftGraceError> {
    match winddown_shared::parse_duration(text) {
        Ok(grace) if grace.is_zero() => Err(SoftGraceError::Zero),
        Ok(grace) => Ok(grace),
        Err(error) => Err(SoftGraceError::Duration(error)),
    }
}

/// Everything that is wrong with a configuration, at least one thing.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{}", .0.iter().map(|error| error_chain(error)).collect::<Vec<_>>().join("; "))]
pub struct ThresholdErrors(pub Vec<ThresholdError>);

impl ThresholdConfig {
    /// The thresholds: hard ones, then soft ones, each in the order of [`Signal::ALL`]. Entries of
    /// `0%` and `100%` make none; a grace or a reclaim without a threshold has no effect.
    ///
    /// # Errors
    /// All entries that cannot be used: hard ones, soft ones, graces, reclaims, missing graces.
    pub fn thresholds(&self) -> Result<Vec<Threshold>, ThresholdErrors> {
        let mut errors = Vec::new();
        let hard = values("evictionHard", &self.hard, parse_threshold, &mut errors);
        let soft = values("evictionSoft", &self.soft, parse_threshold, &mut errors);
        let graces = self.graces(&mut errors);
        let reclaim = |text: &str| parse_minimum_reclaim(text).map(Some);
        let reclaims =
            values("evictionMinimumReclaim", &self.minimum_reclaim, reclaim, &mut errors);
        let min_reclaim = |signal: Signal| reclaims.get(&signal).copied();
        let mut thresholds = Vec::with_capacity(hard.len() + soft.len());
        for (signal, value) in hard {
            let min_reclaim = min_reclaim(signal);
            thresholds.push(Threshold { signal, value, grace: Duration::ZERO, min_reclaim });
        }
        for (signal, value) in soft {
            match graces.get(&signal) {
                Some(&grace) => {
                    let min_reclaim = min_reclaim(signal);
                    thresholds.push(Threshold { signal, value, grace, min_reclaim });
                }
                // Unreadable ones were reported already.
                None if self.soft_grace.contains_key(signal.as_str()) => {}
                None => errors.push(ThresholdError::GraceMissing { signal }),
            }
        }
        if errors.is_empty() { Ok(thresholds) } else { Err(ThresholdErrors(errors)) }
    }

    fn graces(&self, errors: &mut Vec<ThresholdError>) -> BTreeMap<Signal, Duration> {
        let read = |name: &str, text: &str| {
            let signal = named("evictionSoftGracePeriod", name)?;
            let grace: GoDuration =
                text.parse().map_err(|source| ThresholdError::Grace { signal, source })?;
            let positive = Duration::try_from(grace)
                .map_err(|_| ThresholdError::NegativeGrace { signal, grace })?;
            Ok((signal, positive))
        };
        let mut graces = BTreeMap::new();
        for (name, text) in &self.soft_grace {
            match read(name, text) {
                Ok((signal, grace)) => drop(graces.insert(signal, grace)),
                Err(error) => errors.push(error),
            }
        }
        graces
    }
}

fn values(
    field: &'static str,
    entries: &BTreeMap<String, String>,
    read: impl Fn(&str) -> Result<Option<ThresholdValue>, ValueError>,
    errors: &mut Vec<ThresholdError>,
) -> BTreeMap<Signal, ThresholdValue> {
    let one = |name: &str, text: &str| {
        let signal = named(field, name)?;
        match read(text) {
            Ok(value) => Ok(value.map(|value| (signal, value))),
            Err(source) => Err(ThresholdError::Value { field, signal, source }),
        }
    };
    let mut values = BTreeMap::new();
    for (name, text) in entries {
        match one(name, text) {
            Ok(value) => values.extend(value),
            Err(error) => errors.push(error),
        }
    }
    values
}

fn named(field: &'static str, name: &str) -> Result<Signal, ThresholdError> {
    name.parse().map_err(|source| ThresholdError::Signal { field, source })
}
