//! Every test on disposable nodes but those of chaos and of real pressure.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod cluster;
mod companion;
mod crash;
mod cri;
mod embedder;
mod eviction;
mod harness;
mod lame_duck;
mod limits;
mod operator;
mod ordering;
mod packages;
#[path = "../../../programs/tests/docs/page.rs"]
#[allow(dead_code, clippy::expect_used, reason = "made for the tests of the pages themselves")]
mod page;
mod preemption;
#[path = "../../../programs/tests/docs/printed.rs"]
#[allow(dead_code, clippy::expect_used, reason = "made for the tests of the texts themselves")]
mod printed;
mod reboots_in_a_row;
mod restarts;
mod services;
mod shutdown;
mod soak;
mod typed_pages;
mod ways;
