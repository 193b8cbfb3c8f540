//! Eviction thresholds.

use std::collections::BTreeMap;
use std::time::Duration;

pub use winddown_host::ThresholdValue;
use winddown_shared::Quantity;

use crate::signal::Signal;

mod config;
mod derive;
#[cfg(test)]
mod tests;
mod value;

pub use config::{
    SoftGraceError, ThresholdConfig, ThresholdError, ThresholdErrors, ThresholdPart,
    parse_soft_grace,
};
pub use derive::IneffectiveThreshold;
pub(crate) use derive::{with_allocatable, with_container_fs};
pub use value::{ValueError, parse_minimum_reclaim, parse_threshold};

/// The hard thresholds of a node for which nothing is configured.
pub const DEFAULT_HARD: [(Signal, &str); 5] = [
    (Signal::MemoryAvailable, "100Mi"),
    (Signal::NodeFsAvailable, "10%"),
    (Signal::NodeFsInodesFree, "5%"),
    (Signal::ImageFsAvailable, "15%"),
    (Signal::ImageFsInodesFree, "5%"),
];

/// A threshold: the resource is short when less than this is available.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Threshold {
    /// The signal that is watched.
    pub signal: Signal,
    /// The least amount that should be available.
    pub value: ThresholdValue,
    /// How long the resource may stay short before a pod is evicted. Zero for a hard threshold.
    pub grace: Duration,
    /// The minimum reclaim: how much more than `value` must be available after an eviction before the shortage is over.
    pub min_reclaim: Option<ThresholdValue>,
}

// === impl Threshold ===

impl Threshold {
    /// A hard threshold without a minimum reclaim.
    #[must_use]
    pub const fn new(signal: Signal, value: ThresholdValue) -> Self {
        Self { signal, value, grace: Duration::ZERO, min_reclaim: None }
    }

    /// Whether this is a hard threshold: a pod is evicted as soon as it is met, with one second of grace.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// The least amount of `capacity` that should be available, plus the minimum reclaim if `reclaiming`.
    #[must_use]
    pub fn quantity(&self, capacity: i64, reclaiming: bool) -> Quantity {
        let value = self.value.of(capacity);
        match self.min_reclaim.filter(|_| reclaiming) {
            Some(more) => value.saturating_add(more.of(capacity)),
            None => value,
        }
    }
}

/// The thresholds of [`DEFAULT_HARD`] in the form of the configuration.
#[must_use]
pub fn default_hard() -> BTreeMap<String, String> {
    DEFAULT_HARD.map(|(signal, value)| (signal.as_str().to_owned(), value.to_owned())).into()
}
