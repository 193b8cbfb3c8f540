//! Statuses, mirrors and the clean-up after a boot against a real protocol: TLS, HTTP, patches.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and JSON reads better where it is used"
)]

mod after_boot;
mod cut_off;
mod kubelet;
mod mirrors;
pub(crate) mod world;
