//! Counters and gauges of plug-ins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter. Clones share one value.
///
/// The node shows it once [`Plugin::metrics`](super::Plugin::metrics) has returned it, starting from zero.
#[derive(Clone, Debug)]
pub struct Counter(Series);

/// A gauge; 0 until it is set. Clones share one value.
#[derive(Clone, Debug)]
pub struct Gauge(Series);

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

/// One value of a family.
#[derive(Clone, Debug)]
struct Series {
    family: Arc<Family>,
    at: usize,
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    label: Option<(&'static str, &'static [&'static str])>,
    /// One number per label value, then one for all others; those of a gauge are the bits of an `f64`.
    numbers: Vec<AtomicU64>,
}

impl Series {
    fn new(
        name: &'static str,
        help: &'static str,
        is_counter: bool,
        label: Option<(&'static str, &'static [&'static str])>,
    ) -> Self {
        let values = label.map_or(0, |(_, values)| values.len());
        let numbers = std::iter::repeat_with(AtomicU64::default).take(values + 1).collect();
        let family = Arc::new(Family { name, help, is_counter, label, numbers });
        Self { family, at: values }
    }

    fn of(&self, value: &str) -> Self {
        let values = PluginMetric(Arc::clone(&self.family)).label_values();
        let at = values.iter().position(|known| *known == value).unwrap_or(values.len());
        Self { family: Arc::clone(&self.family), at }
    }

    fn number(&self) -> &AtomicU64 {
        &self.family.numbers[self.at]
    }
}

// === impl Counter ===

impl Counter {
    /// Creates a counter; its name does not include the `_total` that is added.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str) -> Self {
        Self(Series::new(name, help, true, None))
    }

    /// Creates counters distinguished by a label with these values. Any other value is counted as
    /// `other`, so that their number is bounded.
    #[must_use]
    pub fn with_label(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self(Series::new(name, help, true, Some((label, values))))
    }

    /// The counter of one value of the label.
    #[must_use]
    pub fn with_label_value(&self, value: &str) -> Self {
        Self(self.0.of(value))
    }

    /// Increments the counter by one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Increments the counter by `more`.
    pub fn add(&self, more: u64) {
        self.0.number().fetch_add(more, Ordering::Relaxed);
    }
}

// === impl Gauge ===

impl Gauge {
    /// Creates a gauge.
    #[must_use]
    pub fn new(name: &'static str, help: &'static str) -> Self {
        Self(Series::new(name, help, false, None))
    }

    /// Sets the value.
    pub fn set(&self, level: f64) {
        self.0.number().store(level.to_bits(), Ordering::Relaxed);
    }
}

// === impl PluginMetric ===

impl From<&Counter> for PluginMetric {
    fn from(counter: &Counter) -> Self {
        Self(Arc::clone(&counter.0.family))
    }
}

impl From<&Gauge> for PluginMetric {
    fn from(gauge: &Gauge) -> Self {
        Self(Arc::clone(&gauge.0.family))
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

    /// Its label, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&'static str> {
        self.0.label.map(|(label, _)| label)
    }

    /// The label values that were given, without `other`; empty without a label.
    #[must_use]
    pub fn label_values(&self) -> &'static [&'static str] {
        self.0.label.map_or(&[], |(_, values)| values)
    }

    /// The values, one per label value in order; `other` only once it was used. Without a label,
    /// the label value is empty.
    pub fn samples(&self) -> impl Iterator<Item = (&'static str, MetricValue)> {
        let Family { is_counter, label, ref numbers, .. } = *self.0;
        let others = if label.is_some() { "other" } else { "" };
        let names = self.label_values().iter().copied().chain([others]);
        let numbers = numbers.iter().map(|number| number.load(Ordering::Relaxed));
        let shown = move |(name, number): &(&str, u64)| *name != "other" || *number > 0;
        names.zip(numbers).filter(shown).map(move |(name, number)| match is_counter {
            true => (name, MetricValue::Count(number)),
            false => (name, MetricValue::Level(f64::from_bits(number))),
        })
    }
}

#[cfg(test)]
mod tests;
