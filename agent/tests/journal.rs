//! The log of a whole agent: how much it says while something is away, and the catalog that explains
//! it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "metrics/bed.rs"]
#[allow(dead_code, reason = "made for another test")]
mod bed;
#[path = "journal/catalog.rs"]
mod catalog;
#[path = "journal/causes.rs"]
mod causes;
#[path = "journal/cluster.rs"]
mod cluster;
#[path = "journal/lines.rs"]
mod lines;
#[path = "journal/outages.rs"]
mod outages;
