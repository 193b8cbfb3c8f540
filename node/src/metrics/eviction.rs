//! Metrics of eviction: thresholds, what is available, swap.

use std::fmt;

use winddown_control::api::{PressureStatus, SwapStatus, ThresholdStatus};
use winddown_shared::Quantity;

use super::document::Document;

pub(super) fn encode(status: &PressureStatus, out: &mut Document<'_, '_>) -> fmt::Result {
    encode_thresholds(&status.thresholds, out)?;
    encode_swap(status.swap, out)
}

/// Writes nothing without thresholds, or before the first measurement.
fn encode_thresholds(thresholds: &[ThresholdStatus], out: &mut Document<'_, '_>) -> fmt::Result {
    let mut available: Vec<([(&str, &str); 1], f64)> = Vec::new();
    let (mut capacity, mut least) = (Vec::new(), Vec::new());
    for view in thresholds {
        let signal = ("eviction_signal", &*view.signal);
        if let Some(amount) = amount(view.threshold.as_ref()) {
            let kind = ("threshold", if view.hard { "hard" } else { "soft" });
            least.push(([signal, kind], amount));
        }
        let Some(amount) = amount(view.available.as_ref()) else { continue };
        // A hard and a soft threshold of a signal share one measurement.
        if available.iter().all(|(labels, _)| *labels != [signal]) {
            available.push(([signal], amount));
            capacity.extend(view.capacity.map(|capacity| ([signal], capacity)));
        }
    }
    if !available.is_empty() {
        let help = "The available amount, in the signal's unit, as of the last sample.";
        out.gauges("winddown_eviction_signal_available", help, &available)?;
        let help = "The total amount, in the signal's unit.";
        out.gauges("winddown_eviction_signal_capacity", help, &capacity)?;
    }
    if least.is_empty() {
        return Ok(());
    }
    let help = "The eviction threshold: with less available, pods are evicted.";
    out.gauges("winddown_eviction_threshold", help, &least)
}

/// Writes nothing for a node without swap.
fn encode_swap(swap: Option<SwapStatus>, out: &mut Document<'_, '_>) -> fmt::Result {
    let Some(SwapStatus { total, free, zswap, zswapped, .. }) = swap else {
        return Ok(());
    };
    let all =
        [("total", Some(total)), ("free", Some(free)), ("zswap", zswap), ("zswapped", zswapped)];
    let known = all.into_iter().filter_map(|(kind, bytes)| Some(([("kind", kind)], bytes?)));
    let help = "Swap of the node in bytes, the memory that zswap takes, and what zswap holds.";
    out.gauges("winddown_swap", help, &known.collect::<Vec<_>>())
}

/// Parses a quantity.
fn amount(quantity: Option<&String>) -> Option<f64> {
    let quantity: Quantity = quantity?.parse().ok()?;
    // Amounts are small enough for a float's precision.
    #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
    Some(quantity.value() as f64)
}
