//! The resources of this machine, and how much of them pods may use.
//!
//! * [`Capacity`]: CPUs, memory, huge pages, disk and process ids, as the kernel reports them.
//! * [`AllocatableConfig`]: what is reserved; [`AllocatableConfig::allocatable`] is the rest, for pods.
//! * [`LocalNode`]: the node as admission sees it when there is no Node object.
//! * [`NodeUsage`]: what is in use now.
//! * [`host`]: the machine's name, clocks and boot.
//! * [`PsiWatch`]: reports immediately when tasks stall because memory is short.
//!
//! The only crate that reads `/proc` and `/sys` for facts about the node as a whole. Every path is relative to
//! [`Roots`] or [`UsagePaths`], so that tests can use trees of their own.

mod allocatable;
mod capacity;
mod file;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub mod host;
mod local_node;
mod psi;
mod usage;

pub use allocatable::AllocatableConfig;
pub use capacity::Capacity;
pub use file::{ReadError, Roots};
pub use local_node::LocalNode;
pub use psi::{Armed, PsiPlace, PsiTrigger, PsiWatch, StallKind, Unarmed};
pub use usage::{NodeUsage, Reading, UsagePaths};

/// Reports that a test was skipped. Fails if `WINDDOWN_NO_SKIP` is set.
#[cfg(test)]
fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} was skipped: {why}");
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
