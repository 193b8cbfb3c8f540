//! The wire's messages and calls, generated from `runtimes/proto`.

#[allow(
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
#[path = "generated/runtime.v1.rs"]
mod runtime_v1;

#[allow(
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
#[path = "generated/grpc.health.v1.rs"]
mod health_v1;

pub(crate) use health_v1 as health;
pub(crate) use runtime_v1::*;
