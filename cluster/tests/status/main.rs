//! Statuses, mirrors and the clean-up after a boot against a real protocol: TLS, HTTP, patches.
//!
//! Tests whose name begins with `t24`…`t44` are the scenarios of that number in virtual-kubelet's
//! `node/pod_test.go` and `test/e2e`, as far as they are about statuses.
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
mod world;
