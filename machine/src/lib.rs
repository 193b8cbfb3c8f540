//! What this machine has, and how much of it pods may have.
//!
//! * [`Capacity`]: processors, memory, huge pages, disk and process ids, as the kernel has them.
//! * [`AllocatableConfig`]: what is kept from the pods; [`AllocatableConfig::allocatable`] is the rest.
//! * [`LocalNode`]: the node as admission sees it where no Node object exists.
//! * [`NodeUsage`]: what of it is in use now.
//! * [`host`]: its name, its clocks, its boot.
//! * [`PsiWatch`]: tells at once when time is lost for want of memory.
//!
//! The one crate that reads `/proc` and `/sys` for facts about the node as a whole. Every path
//! hangs on [`Roots`], so tests read trees of their own.

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
pub use psi::{Armed, Hold, PsiPlace, PsiTrigger, PsiWatch, Unarmed};
pub use usage::{NodeUsage, Reading, UsagePlaces};

/// Says that a test was not run. Where nothing may be skipped, that is a failure.
#[cfg(test)]
fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} was skipped: {why}");
}
