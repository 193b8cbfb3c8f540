//! The thresholds of a configuration.

use serde::Deserialize;
use winddown_eviction::{
    Threshold, ThresholdConfig, ThresholdError, ThresholdErrors, ThresholdPart, ThresholdValue,
    ValueError,
};
use winddown_shared::{GoDuration, GoDurationError, QuantityError};

#[derive(Deserialize)]
struct Row {
    #[serde(flatten)]
    config: ThresholdConfig,
    thresholds: Vec<Recorded>,
    error: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    signal: String,
    operator: String,
    quantity: Option<String>,
    percentage: Option<f32>,
    grace_period: String,
    min_reclaim_quantity: Option<String>,
    min_reclaim_percentage: Option<f32>,
}

#[test]
fn every_recorded_configuration_makes_the_same_thresholds_or_the_same_error() {
    let rows = crate::rows::rows("eviction-thresholds-kubelet-1.36.jsonl.gz");
    assert_eq!(rows.len(), 400);
    for line in &rows {
        let row: Row = serde_json::from_str(line).unwrap();
        match (row.config.thresholds(), row.error) {
            (Ok(thresholds), None) => {
                assert_eq!(
                    sorted(thresholds.iter().map(recorded)),
                    sorted(row.thresholds),
                    "{line}"
                );
            }
            (Err(ThresholdErrors(errors)), Some(recorded)) => {
                // The kubelet stops at the first field with errors, and reports a random one of them.
                let first = step(&errors[0]);
                let texts = errors.iter().filter(|error| step(error) == first).flat_map(kubelets);
                assert!(texts.into_iter().any(|text| text == recorded), "{line}\nours: {errors:?}");
            }
            (ours, _) => panic!("{line}\nours: {ours:?}"),
        }
    }
}

fn step(error: &ThresholdError) -> String {
    match error {
        ThresholdError::Signal { of, .. } | ThresholdError::Value { of, .. } => of.to_string(),
        ThresholdError::GraceMissing { .. } => "missing".to_owned(),
        _ => ThresholdPart::SoftGrace.to_string(),
    }
}

/// Sorts the thresholds, because the kubelet iterates over maps in random order.
fn sorted(all: impl IntoIterator<Item = Recorded>) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = all.into_iter().collect();
    all.sort_by(|a, b| (&a.signal, &a.grace_period).cmp(&(&b.signal, &b.grace_period)));
    all
}

fn recorded(threshold: &Threshold) -> Recorded {
    let quantity = |value| match value {
        ThresholdValue::Quantity(quantity) => Some(quantity.to_string()),
        ThresholdValue::Share(_) => None,
    };
    let share = |value| match value {
        ThresholdValue::Share(share) => Some(share),
        ThresholdValue::Quantity(_) => None,
    };
    Recorded {
        signal: threshold.signal.to_string(),
        operator: "LessThan".to_owned(),
        quantity: quantity(threshold.value),
        percentage: share(threshold.value),
        grace_period: GoDuration::try_from(threshold.grace).unwrap().to_string(),
        min_reclaim_quantity: threshold.min_reclaim.and_then(quantity),
        min_reclaim_percentage: threshold.min_reclaim.and_then(share),
    }
}

/// The kubelet's messages for the same mistake. Ours also say what to write instead.
fn kubelets(error: &ThresholdError) -> Vec<String> {
    let soft_or_hard = |of: &ThresholdPart| *of != ThresholdPart::MinimumReclaim;
    match error {
        ThresholdError::Signal { source, .. } => {
            vec![format!("unsupported eviction signal {}", source.name)]
        }
        ThresholdError::GraceMissing { signal } => {
            vec![format!("grace period must be specified for the soft eviction threshold {signal}")]
        }
        ThresholdError::NegativeGrace { grace, .. } => vec![format!(
            "invalid eviction grace period specified: {grace}, must be a positive value"
        )],
        ThresholdError::Grace { source, .. } => match source {
            GoDurationError::Empty => vec!["time: invalid duration \"\"".to_owned()],
            GoDurationError::MissingUnit { text } => {
                vec![format!("time: missing unit in duration {text:?}")]
            }
            GoDurationError::UnknownUnit { text, unit } => {
                vec![format!("time: unknown unit {unit:?} in duration {text:?}")]
            }
            GoDurationError::NumberExpected { text, .. } => {
                vec![format!("time: invalid duration {text:?}")]
            }
            other => panic!("not recorded: {other:?}"),
        },
        ThresholdError::Value { of, signal, source } => match source {
            ValueError::Percentage { text, .. } => {
                let number = text.trim_end_matches('%');
                vec![format!("strconv.ParseFloat: parsing {number:?}: invalid syntax")]
            }
            ValueError::Range { text, .. } if text.ends_with('%') && soft_or_hard(of) => vec![
                format!("eviction percentage threshold {signal} must be >= 0%: {text}"),
                format!("eviction percentage threshold {signal} must be <= 100%: {text}"),
            ],
            ValueError::Range { text, .. } if text.ends_with('%') => vec![format!(
                "eviction percentage minimum reclaim {signal} must be positive: {text}"
            )],
            ValueError::Range { text, .. } if soft_or_hard(of) => {
                vec![format!("eviction threshold {signal} must be positive: {text}")]
            }
            ValueError::Range { .. } => {
                vec![format!("negative eviction minimum reclaim specified for {signal}")]
            }
            ValueError::Quantity { source: QuantityError::UnknownSuffix { .. }, .. } => {
                vec!["unable to parse quantity's suffix".to_owned(), NO_QUANTITY.to_owned()]
            }
            ValueError::Quantity { .. } => vec![NO_QUANTITY.to_owned()],
            other => panic!("not recorded: {other:?}"),
        },
        other => panic!("not recorded: {other:?}"),
    }
}

const NO_QUANTITY: &str = "quantities must match the regular expression \
                           '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
