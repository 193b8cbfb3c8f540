//! The metrics of third-party plug-ins.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use winddown_shared::{MetricValue, PluginMetric};

/// A metric family of a plug-in, encoded with its values at the scrape.
#[derive(Debug)]
pub(super) struct OfPlugin(pub(super) PluginMetric);

impl EncodeMetric for OfPlugin {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (value, measured) in self.0.samples() {
            let Some(label) = self.0.label() else {
                encode(measured, encoder)?;
                break;
            };
            encode(measured, encoder.encode_family(&[(label, value)])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        if self.0.is_counter() { MetricType::Counter } else { MetricType::Gauge }
    }
}

fn encode(measured: MetricValue, encoder: MetricEncoder<'_>) -> fmt::Result {
    match measured {
        MetricValue::Count(count) => ConstCounter::new(count).encode(encoder),
        MetricValue::Level(level) => ConstGauge::new(level).encode(encoder),
    }
}
