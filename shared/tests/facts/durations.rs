//! `time.ParseDuration` and `Duration.String`.

use serde::Deserialize;
use winddown_shared::GoDuration;

use crate::corpus;

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "in")]
    text: String,
    #[serde(default)]
    error: bool,
    nanos: Option<String>,
    canonical: Option<String>,
}

#[test]
fn every_recorded_duration_reads_and_prints_as_go_does() {
    let rows: Vec<Row> = corpus::lines("durations-kubelet-1.36.jsonl.gz");
    assert_eq!(rows.len(), 40);
    for row in rows {
        let ours = row.text.parse::<GoDuration>();
        if row.error {
            assert!(ours.is_err(), "{:?} was read as {ours:?}", row.text);
            continue;
        }
        let ours = ours.unwrap_or_else(|error| panic!("{:?}: {error}", row.text));
        assert_eq!(Some(ours.as_nanos().to_string()), row.nanos, "{:?}", row.text);
        assert_eq!(Some(ours.to_string()), row.canonical, "{:?}", row.text);
    }
}
