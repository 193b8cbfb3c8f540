//! The node controller against an API server: real connections, real patches, real watches.
//!
//! Scenarios of virtual-kubelet's own tests carry their names.

#[path = "node/harness.rs"]
mod harness;
#[path = "node/ownership.rs"]
mod ownership;
#[path = "node/registration.rs"]
mod registration;
#[path = "node/trouble.rs"]
mod trouble;
