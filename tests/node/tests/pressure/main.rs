//! Real pressure: pods take memory, tasks or disk in a part of this machine that is bounded for the test,
//! and a real agent ends the right one, or nobody.
//!
//! The agent and its pods run here and now, in control groups of the test's own with limits, which count
//! as the whole node; containers run on a disposable node that is bounded so. Nothing of the machine
//! itself runs short. What can be is played once more in a node with control groups of version 2.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod bounded;
mod calm;
mod containers;
mod disk;
mod memory;
mod stalls;
mod tasks;
mod unified;
