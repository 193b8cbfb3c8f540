//! The metrics of plug-ins: gauges of the node's own, and families of third parties.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use winddown_shared::{MetricValue, PluginMetric};

use super::document::Document;

/// A gauge of a plug-in of the node's own.
#[derive(Clone, Debug)]
pub struct PluginGauge {
    name: &'static str,
    help: &'static str,
    value: GaugeValue,
}

#[derive(Clone, Debug)]
enum GaugeValue {
    Count(usize),
    /// A count for each value of a label.
    Labelled(Vec<([(&'static str, &'static str); 1], usize)>),
    Seconds(Duration),
}

/// A metric family of a third-party plug-in, encoded with its values at the scrape.
#[derive(Debug)]
pub(super) struct OfPlugin(pub(super) PluginMetric);

impl PluginGauge {
    /// A number of things.
    pub const fn count(name: &'static str, help: &'static str, count: usize) -> Self {
        Self { name, help, value: GaugeValue::Count(count) }
    }

    /// Numbers of things for each value of `label`.
    pub fn labelled(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        counts: &[(&'static str, usize)],
    ) -> Self {
        let counts = counts.iter().map(|&(value, count)| ([(label, value)], count)).collect();
        Self { name, help, value: GaugeValue::Labelled(counts) }
    }

    /// A time; `_seconds` is appended to the name.
    pub const fn seconds(name: &'static str, help: &'static str, time: Duration) -> Self {
        Self { name, help, value: GaugeValue::Seconds(time) }
    }

    pub(super) fn encode(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        let Self { name, help, value } = self;
        match value {
            GaugeValue::Count(count) => out.gauge(name, help, None, *count),
            GaugeValue::Labelled(counts) => out.gauges(name, help, counts),
            GaugeValue::Seconds(time) => {
                out.gauge(name, help, Some(&Unit::Seconds), time.as_secs_f64())
            }
        }
    }
}

impl EncodeMetric for OfPlugin {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.0.value() {
            MetricValue::Count(count) => ConstCounter::new(count).encode(encoder),
            MetricValue::Level(level) => ConstGauge::new(level).encode(encoder),
        }
    }

    fn metric_type(&self) -> MetricType {
        if self.0.is_counter() { MetricType::Counter } else { MetricType::Gauge }
    }
}
