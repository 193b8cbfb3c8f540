//! The node controller against an API server: real connections, real patches, real watches.
//!
//! Scenarios of virtual-kubelet's own tests carry their names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

#[path = "node/harness.rs"]
mod harness;
#[path = "node/ownership.rs"]
mod ownership;
#[path = "node/registration.rs"]
mod registration;
#[path = "node/trouble.rs"]
mod trouble;
