//! Counters and gauges of plug-ins, and the checks of a list of plug-ins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PluginName;

/// The largest number of values of a label.
const MOST_VALUES: usize = 16;

/// Prefixes of the node's own metrics.
const OURS: [&str; 3] = ["kubelet_", "winddown_", "process_"];

/// Suffixes that the exposition format adds or reserves.
const ADDED: [&str; 6] = ["_total", "_bucket", "_count", "_sum", "_created", "_info"];

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

/// A third-party plug-in in the list of a node.
#[derive(Clone, Debug)]
pub struct RegisteredPlugin {
    /// Its name.
    pub name: PluginName,
    /// Its metrics.
    pub metrics: Vec<PluginMetric>,
}

/// Why a node cannot start with a list of plug-ins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Two plug-ins have the same name.
    #[error("two plug-ins are called {name}; give one of them another name")]
    NameTaken {
        /// The name.
        name: PluginName,
    },
    /// The name of a metric is invalid, or could be one of the node's own.
    #[error(
        "the plug-in {plugin} has a metric {metric:?}; call it {}_ and then lower-case letters, digits and \
         underscores, without an ending that is added ({})", prefix(*plugin), ADDED.join(", ")
    )]
    MetricName {
        /// The plug-in.
        plugin: PluginName,
        /// The name.
        metric: &'static str,
    },
    /// The names of the plug-in's metrics would look like those of the node.
    #[error("metrics of the plug-in {plugin} would look like the node's own; give it another name")]
    MetricOfNode {
        /// The plug-in.
        plugin: PluginName,
    },
    /// Two metrics have the same name.
    #[error(
        "the metric {metric:?} of the plug-in {plugin} is there twice; give one of them another name"
    )]
    MetricTaken {
        /// The plug-in of the second one.
        plugin: PluginName,
        /// The name.
        metric: &'static str,
    },
    /// A label is invalid, or has no bounded set of values.
    #[error(
        "the metric {metric:?} has a label {label:?}; call it by lower-case letters, digits and underscores, and \
         name 1 to {MOST_VALUES} values, each once"
    )]
    Label {
        /// The metric.
        metric: &'static str,
        /// The label.
        label: &'static str,
    },
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
        let values = self.family.label.map_or(&[][..], |(_, values)| values);
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

    /// Creates gauges distinguished by a label, as with [`Counter::with_label`].
    #[must_use]
    pub fn with_label(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        Self(Series::new(name, help, false, Some((label, values))))
    }

    /// The gauge of one value of the label.
    #[must_use]
    pub fn with_label_value(&self, value: &str) -> Self {
        Self(self.0.of(value))
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

    /// The values, one per label value in order; `other` only once it was used. Without a label,
    /// the label value is empty.
    pub fn samples(&self) -> impl Iterator<Item = (&'static str, MetricValue)> {
        let Family { is_counter, label, ref numbers, .. } = *self.0;
        let (others, values) = match label {
            Some((_, values)) => ("other", values),
            None => ("", &[][..]),
        };
        let names = values.iter().copied().chain([others]);
        let numbers = numbers.iter().map(|number| number.load(Ordering::Relaxed));
        let shown = move |(name, number): &(&str, u64)| *name != "other" || *number > 0;
        names.zip(numbers).filter(shown).map(move |(name, number)| match is_counter {
            true => (name, MetricValue::Count(number)),
            false => (name, MetricValue::Level(f64::from_bits(number))),
        })
    }
}

impl RegisteredPlugin {
    /// Checks that these can be plug-ins of one node: their names, and those of their metrics and labels.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(plugins: &[Self]) -> Result<(), PluginError> {
        let mut taken = std::collections::HashSet::new();
        for (at, Self { name, metrics }) in plugins.iter().enumerate() {
            if plugins[..at].iter().any(|other| other.name == *name) {
                return Err(PluginError::NameTaken { name: *name });
            }
            for PluginMetric(family) in metrics {
                family.check(*name)?;
                if !taken.insert(family.name) {
                    return Err(PluginError::MetricTaken { plugin: *name, metric: family.name });
                }
            }
        }
        Ok(())
    }
}

impl Family {
    fn check(&self, plugin: PluginName) -> Result<(), PluginError> {
        let prefix = format!("{}_", prefix(plugin));
        if OURS.iter().any(|ours| prefix.starts_with(ours)) {
            return Err(PluginError::MetricOfNode { plugin });
        }
        let rest = self.name.strip_prefix(&prefix).unwrap_or_default();
        if !is_word(rest) || ADDED.iter().any(|added| self.name.ends_with(added)) {
            return Err(PluginError::MetricName { plugin, metric: self.name });
        }
        let Some((label, values)) = self.label else { return Ok(()) };
        let is_twice = |(at, value): (usize, &&str)| values[..at].contains(value);
        let bounded = (1..=MOST_VALUES).contains(&values.len())
            && !values.iter().enumerate().any(is_twice)
            && !values.contains(&"other");
        match is_word(label) && bounded {
            true => Ok(()),
            false => Err(PluginError::Label { metric: self.name, label }),
        }
    }
}

fn prefix(plugin: PluginName) -> String {
    plugin.as_str().replace('-', "_")
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests;
