//! What every runtime has in common, on each of them (`suite`), and the CRI runtime against a scripted
//! runtime (`behaviour`, `faults`) and a real containerd (`real`).

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod bed;
mod behaviour;
mod containerd;
mod faults;
mod real;
mod stage;
mod suite;
