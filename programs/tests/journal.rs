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
