//! Real containers as real processes: what the process runtime promises, seen from outside.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod adoption;
mod bed;
mod boots;
mod cgroups;
mod disk;
mod faults;
mod lifecycle;
mod logs;
mod probes;
mod restarts;
mod secrets;
mod stats;
mod stopping;
