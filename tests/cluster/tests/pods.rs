//! The pod controller against an API server: real connections, real watches, real statuses.
//!
//! The provider is the example one. `pods/README.md` says which scenario is where.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../../../cluster/examples/sleepers.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod sleepers;

mod conformance;
mod deletion;
pub(crate) mod harness;
mod lifecycle;
mod table;
mod trouble;
