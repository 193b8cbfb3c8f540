//! Every field of a pod that a runtime may decide by, with what each runtime makes of it.
//!
//! A row is `field = sample with CHANGES_OF_OTHER_FIELDS => VERDICTS;`. With two verdicts, the first is that of
//! `process` and `systemd`, which have their check and the preparation of a command in common.

use serde_json::{Value, json};

use crate::table::{Group, Row};

mod container;
mod handlers;
mod pod;
mod security;
mod volumes;

/// The table.
pub(crate) fn all() -> Vec<Group> {
    [pod::groups(), container::groups(), security::groups(), handlers::groups(), volumes::groups()]
        .into_iter()
        .flatten()
        .collect()
}

fn group(of: &'static str, at: &'static str, base: Value, rows: Vec<Row>) -> Group {
    Group { of, at, base, rows }
}

fn plain(of: &'static str, at: &'static str, rows: Vec<Row>) -> Group {
    group(of, at, json!({}), rows)
}
