//! The log of a whole agent: how much it logs during an outage, and the catalog that explains it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod catalog;
mod causes;
mod cluster;
mod lines;
mod outages;

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The sources of each crate that is no test.
fn sources() -> Vec<PathBuf> {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let members = members.split('"').skip(1).step_by(2);
    let members = members.filter(|member| !member.starts_with("tests/"));
    members.map(|member| repository().join(member).join("src")).collect()
}
