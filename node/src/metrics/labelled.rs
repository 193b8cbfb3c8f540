//! A family of metrics with one label, whose number of values is bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};
use winddown_shared::Mutex;

/// The label value of everything beyond the bound.
const OTHER: &str = "other";

/// One metric per value of a label, in the order of the values. Clones share their metrics.
///
/// Unlike the library's `Family`, it is encoded in a fixed order and its size is bounded.
#[derive(Debug)]
pub(super) struct Labelled<M>(Arc<LabelledShared<M>>);

struct LabelledShared<M> {
    label: &'static str,
    most: usize,
    make: fn() -> M,
    series: Mutex<BTreeMap<String, M>>,
}

impl<M: Clone> Labelled<M> {
    /// A family of at most `most` values; further values are counted as `other`, which is one more.
    pub(super) fn new(label: &'static str, most: usize, make: fn() -> M) -> Self {
        Self(Arc::new(LabelledShared { label, most, make, series: Mutex::default() }))
    }

    /// The metric of one value, created if it does not exist yet.
    pub(super) fn of(&self, value: &str) -> M {
        let mut series = self.0.series.lock();
        if let Some(metric) = series.get(value) {
            return metric.clone();
        }
        let value = if series.len() < self.0.most { value } else { OTHER };
        series.entry(value.to_owned()).or_insert_with(self.0.make).clone()
    }
}

impl<M> Clone for Labelled<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for LabelledShared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inner({}, {} series)", self.label, self.series.lock().len())
    }
}

impl<M: EncodeMetric + TypedMetric> EncodeMetric for Labelled<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (value, metric) in self.0.series.lock().iter() {
            metric.encode(encoder.encode_family(&[(self.0.label, value.as_str())])?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.0.series.lock().is_empty()
    }
}
