//! What an operator asks a real node, and what it answers.
//!
//! The texts are printed, for whoever reads the output of `cargo test -- --show-output`.

mod after_boot;
mod doctor;
mod failing_starts;
mod fixes;
mod logs;
mod notice;
mod purge;
mod reload;
mod unprivileged;
