//! The programs in the READMEs of the libraries and in docs/embedding.md, each a test.

#![allow(
    warnings,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "they are written for readers"
)]

use std::process::{ExitCode, Termination};

fn ended_well(outcome: impl Termination) {
    // Exit codes cannot be compared otherwise.
    assert_eq!(format!("{:?}", outcome.report()), format!("{:?}", ExitCode::SUCCESS));
}

include!(concat!(env!("OUT_DIR"), "/examples.rs"));
