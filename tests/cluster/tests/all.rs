//! Everything that talks to an API server, against the stand-in for one.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod client;
mod companion;
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod connect;
mod daemon_set;
mod events;
#[allow(dead_code, clippy::unwrap_used, reason = "the tests on a real server use the rest")]
mod in_memory;
mod node;
mod pods;
mod resolve;
mod rights;
mod status;
