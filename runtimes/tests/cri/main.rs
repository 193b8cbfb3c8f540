//! What every runtime has in common, on each of them (`suite`), and the CRI runtime against a scripted
//! runtime (`behaviour`, `faults`, `starts`, `outages`) and a real containerd (`real`, `held`, `many`).

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod bed;
mod behaviour;
mod containerd;
mod faults;
mod held;
mod many;
mod outages;
mod real;
mod stage;
mod starts;
mod stats;
mod suite;
