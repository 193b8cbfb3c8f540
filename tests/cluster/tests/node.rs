//! The node controller against an API server: real connections, real patches, real watches.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod after_nodes;
pub(crate) mod harness;
mod trouble;
