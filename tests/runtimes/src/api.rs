//! The messages of CRI and the server side of its calls, generated from `runtimes/cri/proto`.
//!
//! Formatted as the generator writes them, so that a test can compare.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    rustdoc::all,
    rust_2018_idioms,
    dead_code
)]

#[rustfmt::skip]
#[path = "generated/runtime.v1.rs"]
mod runtime_v1;

#[rustfmt::skip]
#[path = "generated/grpc.health.v1.rs"]
pub mod health;

pub(crate) use runtime_v1::*;
