//! `resource.ParseQuantity`, `String`, `Value` and `MilliValue`.
//!
//! `quantity_differences.jsonl` lists every row in which this crate intentionally differs, with the
//! result of exact arithmetic and why the recorded one differs:
//!
//! * `overflow`: the recorded number wrapped around 64 bits, or became 0 on the way; this crate
//!   saturates.
//! * `negative`: the recorded number lost its sign, its magnitude or both on the slow path; this
//!   crate rounds away from zero on either side.
//! * `echo`: the recorded text is the input, which was taken as canonical although it has a plus sign, a fraction,
//!   leading zeros or another spelling of the exponent; this crate's is canonical.
//! * `exponent`: the recorded text dropped an exponent beyond `E`; this crate writes it as `e21`.
//! * `capped`: more than about 1.7e29 units, where this crate saturates.

use std::collections::HashMap;

use serde::Deserialize;
use winddown_shared::Quantity;

use crate::corpus;

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "in")]
    text: String,
    #[serde(default)]
    error: bool,
    #[serde(flatten)]
    answers: Answers,
}

#[derive(Deserialize)]
struct Difference {
    #[serde(rename = "in")]
    text: String,
    why: Vec<Why>,
    #[serde(flatten)]
    answers: Answers,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Answers {
    canonical: Option<String>,
    value: Option<String>,
    milli_value: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Why {
    Overflow,
    Negative,
    Echo,
    Exponent,
    Capped,
}

impl Answers {
    fn of(quantity: Quantity) -> Self {
        Self {
            canonical: Some(quantity.to_string()),
            value: Some(quantity.value().to_string()),
            milli_value: Some(quantity.milli_value().to_string()),
        }
    }

    fn overlaid(&self, other: &Self) -> Self {
        let pick = |ours: &Option<String>, theirs: &Option<String>| {
            ours.clone().or_else(|| theirs.clone())
        };
        Self {
            canonical: pick(&other.canonical, &self.canonical),
            value: pick(&other.value, &self.value),
            milli_value: pick(&other.milli_value, &self.milli_value),
        }
    }
}

fn differences() -> HashMap<String, Difference> {
    let lines = include_str!("quantity_differences.jsonl").lines();
    let listed: Vec<Difference> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    listed.into_iter().map(|difference| (difference.text.clone(), difference)).collect()
}

#[test]
fn every_recorded_quantity_reads_and_prints_as_recorded_or_as_listed() {
    let rows: Vec<Row> = corpus::lines("quantities-kubelet-1.36.jsonl.gz");
    assert_eq!(rows.len(), 1524);
    let mut listed = differences();
    for row in &rows {
        let ours = row.text.parse::<Quantity>();
        if row.error {
            assert!(ours.is_err(), "{:?} was read as {ours:?}", row.text);
            continue;
        }
        let ours = ours.unwrap_or_else(|error| panic!("{:?}: {error}", row.text));
        let expected = match listed.get(&row.text) {
            Some(difference) => row.answers.overlaid(&difference.answers),
            None => row.answers.clone(),
        };
        assert_eq!(Answers::of(ours), expected, "{:?}", row.text);
    }
    for row in &rows {
        if let Some(difference) = listed.remove(&row.text) {
            assert_ne!(row.answers, row.answers.overlaid(&difference.answers), "{:?}", row.text);
        }
    }
    assert!(listed.is_empty(), "listed but not recorded: {:?}", listed.keys());
}

#[test]
fn every_listed_difference_is_what_its_reason_says() {
    let rows: Vec<Row> = corpus::lines("quantities-kubelet-1.36.jsonl.gz");
    let listed = differences();
    let limits = [i64::MAX.to_string(), i64::MIN.to_string()];
    for row in rows {
        let Some(Difference { why, answers, .. }) = listed.get(&row.text) else { continue };
        let has = |reason| why.contains(&reason);
        let numbers: Vec<_> =
            [&answers.value, &answers.milli_value].into_iter().flatten().collect();
        let saturated = numbers.iter().any(|number| limits.contains(number));
        assert_eq!(
            answers.canonical.is_some(),
            has(Why::Echo) || has(Why::Exponent) || has(Why::Capped)
        );
        assert_eq!(!numbers.is_empty(), has(Why::Overflow) || has(Why::Negative), "{:?}", row.text);
        assert!(!has(Why::Overflow) || saturated, "{:?} does not saturate", row.text);
        assert!(!has(Why::Negative) || row.text.starts_with('-'), "{:?}", row.text);
        if has(Why::Echo) {
            assert_eq!(row.answers.canonical.as_deref(), Some(row.text.as_str()));
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThresholdRow {
    eviction_hard: HashMap<String, String>,
    eviction_soft: HashMap<String, String>,
    thresholds: Option<Vec<Threshold>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Threshold {
    signal: String,
    quantity: Option<String>,
    grace_period: String,
}

#[test]
fn every_recorded_eviction_threshold_prints_as_recorded() {
    let rows: Vec<ThresholdRow> = corpus::lines("eviction-thresholds-kubelet-1.36.jsonl.gz");
    let mut checked = 0;
    for row in rows {
        for threshold in row.thresholds.into_iter().flatten() {
            let Some(recorded) = threshold.quantity else { continue };
            let is_hard = threshold.grace_period == "0s";
            let texts = if is_hard { &row.eviction_hard } else { &row.eviction_soft };
            let Some(text) = texts.get(&threshold.signal) else { continue };
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), recorded, "{text:?}");
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} thresholds");
}
