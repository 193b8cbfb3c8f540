//! The four maps of a configuration, and the thresholds that they define.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use winddown_shared::{GoDuration, GoDurationError, error_chain};

use super::value::{ValueError, parse_minimum_reclaim, parse_threshold};
use super::{Threshold, ThresholdValue};
use crate::signal::{Signal, UnknownSignal};

/// Thresholds as the configuration writes them: maps from signal to text.
///
/// ```
/// use winddown_eviction::{Policy, ThresholdConfig};
///
/// let config = ThresholdConfig::default().with_hard([("memory.available", "100Mi")]);
/// let policy = Policy::new(config.thresholds()?, false);
/// assert!(policy.thresholds()[0].is_hard());
/// # Ok::<(), winddown_eviction::ThresholdErrors>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ThresholdConfig {
    /// Hard thresholds, which evict at once.
    #[serde(rename = "evictionHard")]
    pub hard: BTreeMap<String, String>,
    /// Soft thresholds, which evict after a grace period.
    #[serde(rename = "evictionSoft")]
    pub soft: BTreeMap<String, String>,
    /// The grace period of each soft threshold, in Go's duration format.
    #[serde(rename = "evictionSoftGracePeriod")]
    pub soft_grace: BTreeMap<String, String>,
    /// The minimum reclaim of hard and soft thresholds.
    #[serde(rename = "evictionMinimumReclaim")]
    pub minimum_reclaim: BTreeMap<String, String>,
}

/// Why a threshold is invalid.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum ThresholdError {
    /// A name is not a signal.
    #[error("{of}")]
    Signal {
        /// What it was to be the signal of.
        of: ThresholdPart,
        /// The name.
        source: UnknownSignal,
    },
    /// A value is not a threshold or a minimum reclaim.
    #[error("{of} of {signal}")]
    Value {
        /// What it was to be.
        of: ThresholdPart,
        /// The signal of the entry.
        signal: Signal,
        /// The reason.
        source: ValueError,
    },
    /// A grace period is not a duration.
    #[error("{} of {signal}", ThresholdPart::SoftGrace)]
    Grace {
        /// The signal of the entry.
        signal: Signal,
        /// The reason.
        source: GoDurationError,
    },
    /// A grace period is negative.
    #[error("{} of {signal}: {grace} is negative: write 0s or more", ThresholdPart::SoftGrace)]
    NegativeGrace {
        /// The signal of the entry.
        signal: Signal,
        /// The grace period as given.
        grace: GoDuration,
    },
    /// A soft threshold has no grace period.
    #[error("{} of {signal}: needs a grace period, for example 1m30s", ThresholdPart::Soft)]
    GraceMissing {
        /// The signal of the entry.
        signal: Signal,
    },
}

/// A part of a [`ThresholdConfig`], as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThresholdPart {
    /// A hard threshold.
    Hard,
    /// A soft threshold.
    Soft,
    /// The grace period of a soft threshold.
    SoftGrace,
    /// A minimum reclaim.
    MinimumReclaim,
}

impl fmt::Display for ThresholdPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hard => "hard threshold",
            Self::Soft => "soft threshold",
            Self::SoftGrace => "grace period of the soft threshold",
            Self::MinimumReclaim => "minimum reclaim",
        })
    }
}

/// Why a soft grace period is invalid.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftGraceError {
    /// The text is not a duration.
    #[error(transparent)]
    Duration(winddown_shared::DurationError),
    /// The duration is zero.
    #[error("needs more than 0s: without grace it is a hard threshold")]
    Zero,
}

/// Parses the grace period of a soft threshold, in Go's form or in words. Unlike [`ThresholdConfig::thresholds`], it
/// rejects zero, which would make the threshold a hard one.
///
/// # Errors
/// The text is not a duration, or the duration is zero.
pub fn parse_soft_grace(text: &str) -> Result<Duration, SoftGraceError> {
    match winddown_shared::parse_duration(text) {
        Ok(grace) if grace.is_zero() => Err(SoftGraceError::Zero),
        Ok(grace) => Ok(grace),
        Err(error) => Err(SoftGraceError::Duration(error)),
    }
}

/// All errors of a configuration, at least one.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{}", .0.iter().map(|error| error_chain(error)).collect::<Vec<_>>().join("; "))]
pub struct ThresholdErrors(pub Vec<ThresholdError>);

impl ThresholdConfig {
    /// Adds hard thresholds: the names of signals, and what has to stay available of each.
    #[must_use]
    pub fn with_hard<N: Into<String>, V: Into<String>>(
        mut self,
        hard: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.hard.extend(hard.into_iter().map(|(signal, least)| (signal.into(), least.into())));
        self
    }

    /// The thresholds: hard ones, then soft ones, each in the order of [`Signal::ALL`]. Entries of `0%` and `100%`
    /// define none; a grace period or minimum reclaim without a threshold has no effect.
    ///
    /// # Errors
    /// All invalid entries: hard, soft, grace periods, minimum reclaims, missing grace periods.
    pub fn thresholds(&self) -> Result<Vec<Threshold>, ThresholdErrors> {
        let mut errors = Vec::new();
        let hard = values(ThresholdPart::Hard, &self.hard, parse_threshold, &mut errors);
        let soft = values(ThresholdPart::Soft, &self.soft, parse_threshold, &mut errors);
        let graces = self.graces(&mut errors);
        let reclaim = |text: &str| parse_minimum_reclaim(text).map(Some);
        let reclaims =
            values(ThresholdPart::MinimumReclaim, &self.minimum_reclaim, reclaim, &mut errors);
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
                // An invalid grace period was reported already.
                None if self.soft_grace.contains_key(signal.as_str()) => {}
                None => errors.push(ThresholdError::GraceMissing { signal }),
            }
        }
        if errors.is_empty() { Ok(thresholds) } else { Err(ThresholdErrors(errors)) }
    }

    fn graces(&self, errors: &mut Vec<ThresholdError>) -> BTreeMap<Signal, Duration> {
        let read = |name: &str, text: &str| {
            let signal = named(ThresholdPart::SoftGrace, name)?;
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
    of: ThresholdPart,
    entries: &BTreeMap<String, String>,
    read: impl Fn(&str) -> Result<Option<ThresholdValue>, ValueError>,
    errors: &mut Vec<ThresholdError>,
) -> BTreeMap<Signal, ThresholdValue> {
    let one = |name: &str, text: &str| {
        let signal = named(of, name)?;
        match read(text) {
            Ok(value) => Ok(value.map(|value| (signal, value))),
            Err(source) => Err(ThresholdError::Value { of, signal, source }),
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

fn named(of: ThresholdPart, name: &str) -> Result<Signal, ThresholdError> {
    name.parse().map_err(|source| ThresholdError::Signal { of, source })
}
