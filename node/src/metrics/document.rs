//! Encodes families of metrics whose values are known at the scrape.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabel, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::Product;

/// The document being written. Names are passed as winddown documents them, without unit and without `_total`, which are
/// appended.
pub(super) struct Document<'a, 'b> {
    pub(super) encoder: &'a mut DescriptorEncoder<'b>,
    pub(super) product: &'a Product,
}

impl Document<'_, '_> {
    /// Writes a gauge with one sample.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        let name = self.product.metric(name);
        let encoder = self.encoder.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    /// Writes a gauge with one sample; nothing if there is no value.
    pub(super) fn gauge_if(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: Option<impl EncodeGaugeValue>,
    ) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(name, help, unit, value))
    }

    /// Writes a gauge with several samples, each with its labels.
    pub(super) fn gauges<L, V, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: &[([L; N], V)],
    ) -> fmt::Result
    where
        L: EncodeLabel + Copy,
        V: EncodeGaugeValue + Copy,
    {
        let name = self.product.metric(name);
        let mut encoder = self.encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            ConstGauge::new(*value).encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    /// Writes a counter with one sample.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        let name = self.product.metric(name);
        let encoder = self.encoder.encode_descriptor(&name, help, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// Writes an info metric, which does not change while the program runs.
    pub(super) fn info<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&'static str, &str); N],
    ) -> fmt::Result {
        let name = self.product.metric(name);
        self.encoder.encode_descriptor(&name, help, None, MetricType::Info)?.encode_info(labels)
    }
}
