//! Pods resolved against an API server that does not always behave.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail the test")]

pub(crate) mod bed;
mod environments;
mod faults;
mod volumes;
mod waiting;
