//! What every runtime has in common, on each of them (`suite`), and the CRI runtime against a scripted
//! runtime (`behaviour`, `faults`, `starts`, `outages`), a real containerd (`real`, `held`, `many`) and systemd's on a
//! small service manager (`services`).

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod bed;
mod behaviour;
mod beside;
mod containerd;
mod faults;
mod held;
mod many;
mod outages;
mod real;
mod services;
mod stage;
mod starts;
mod stats;
mod suite;
mod units;
