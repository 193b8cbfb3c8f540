//! A count whose name does not end in `_total`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter of unknown type. OpenMetrics requires that every counter's name ends in `_total`; a few of the
/// kubelet's do not, and dashboards query them by the kubelet's names, so these state no type. Clones share their count.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<AtomicU64>);

impl Tally {
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl TypedMetric for Tally {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Tally {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.load(Ordering::Relaxed))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
