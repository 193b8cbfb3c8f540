//! Statuses, mirrors and the clean-up after a boot against a real protocol: TLS, HTTP, patches.
//!
//! [`virtual_kubelet`] has the scenarios of virtual-kubelet's own tests that are about statuses, each
//! with the name of the test there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "helpers of tests fail the test, and JSON reads better where it is used"
)]

mod after_boot;
mod cut_off;
mod faults;
mod kubelet;
mod mirrors;
mod virtual_kubelet;
pub(crate) mod world;
