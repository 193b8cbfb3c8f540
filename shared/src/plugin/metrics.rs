//! Counters and gauges of plug-ins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter. Clones share one value.
///
/// The node shows it once [`Plugin::metrics`](super::Plugin::metrics) has returned it, starting from zero.
#[derive(Clone, Debug)]
pub struct Counter(Arc<Family>);

/// A gauge; 0 until it is set. Clones share one value.
#[derive(Clone, Debug)]
pub struct Gauge(Arc<Family>);

/// A [`Counter`] or [`Gauge`], for the node to show.
#[derive(Clone, Debug)]
pub struct PluginMetric(Arc<Family>);

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// The value of a [`Counter`].
    Count(u64),
    /// The value of a [`Gauge`].
    Level(f64),
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    /// That of a gauge has the bits of an `f64`.
    number: AtomicU64,
}

impl Family {
    fn new(name: &'static str, help: &'static str, is_counter: bool) -> Arc<Self> {
        Arc::new(Self { name, help, is_counter, number: AtomicU64::default() })
    }
}

// === impl Counter ===

impl Counter {
    /// Creates a counter; its name does not include the `_total` that is added.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str) -> Self {
        Self(Family::new(name, help, true))
    }

    /// Increments the counter by one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Increments the counter by `more`.
    pub fn add(&self, more: u64) {
        self.0.number.fetch_add(more, Ordering::Relaxed);
    }
}

// === impl Gauge ===

impl Gauge {
    /// Creates a gauge.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str) -> Self {
        Self(Family::new(name, help, false))
    }

    /// Sets the value.
    pub fn set(&self, level: f64) {
        self.0.number.store(level.to_bits(), Ordering::Relaxed);
    }
}

// === impl PluginMetric ===

impl From<&Counter> for PluginMetric {
    fn from(counter: &Counter) -> Self {
        Self(Arc::clone(&counter.0))
    }
}

impl From<&Gauge> for PluginMetric {
    fn from(gauge: &Gauge) -> Self {
        Self(Arc::clone(&gauge.0))
    }
}

impl PluginMetric {
    /// Its name, without what the exposition format adds.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Its description, for people.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.0.help
    }

    /// Whether it is a counter rather than a gauge.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        self.0.is_counter
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> MetricValue {
        let number = self.0.number.load(Ordering::Relaxed);
        match self.0.is_counter {
            true => MetricValue::Count(number),
            false => MetricValue::Level(f64::from_bits(number)),
        }
    }
}

#[cfg(test)]
mod tests;
