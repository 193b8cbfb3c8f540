//! Reads the recorded answers.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;

/// Every line of a compressed file of JSON lines.
pub(crate) fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let file = File::open(path(name)).unwrap();
    let rows: Vec<T> = BufReader::new(GzDecoder::new(file))
        .lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(&line.unwrap())
                .unwrap_or_else(|error| panic!("{name}, line {}: {error}", index + 1))
        })
        .collect();
    assert!(!rows.is_empty(), "{name} is empty");
    rows
}

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "tests", "corpus", name].iter().collect()
}
