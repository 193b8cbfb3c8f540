//! The messages of CRI and the server side of its calls, generated from `runtimes/cri/proto` by the build script.

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

mod runtime_v1 {
    tonic::include_proto!("runtime.v1");
}

pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

pub(crate) use runtime_v1::*;
