//! The pod controller against an API server: real connections, real watches, real statuses.
//!
//! Containers are in memory. `pods/README.md` says which scenario is where.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod conformance;
pub(crate) mod harness;
mod lifecycle;
mod table;
mod trouble;
