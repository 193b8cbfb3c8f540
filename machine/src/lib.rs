//! What this machine has, and how much of it pods may have.
//!
//! * [`Capacity`]: processors, memory, huge pages, disk and process ids, as the kernel has them.
//! * [`Allotment`]: what is kept from the pods; [`Allotment::allocatable`] is the rest.
//! * [`StandAlone`]: the node as admission sees it where no Node object exists.
//! * [`NodeUsage`]: what of it is in use now.
//! * [`host`]: its name, its clocks, its boot.
//! * [`PsiWatch`]: tells at once when time is lost for want of memory.
//!
//! The one crate that reads `/proc` and `/sys` for facts about the node as a whole. Every path
//! hangs on [`Roots`], so tests read trees of their own.

mod allotment;
mod capacity;
mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod host;
mod psi;
mod stand_alone;
mod usage;

pub use allotment::Allotment;
pub use capacity::Capacity;
pub use file::{ReadError, Roots};
pub use psi::{Armed, Hold, PsiAlarm, PsiPlace, PsiTrigger, PsiWatch, Unarmed};
pub use stand_alone::StandAlone;
pub use usage::{NodeUsage, Reading, UsagePlaces};

/// Says that a test was not run. Where nothing may be skipped, that is a failure.
#[cfg(test)]
fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} was skipped: {why}");
}
