//! Programs that kill others when memory runs short, each alone with the same culprits.

mod killer;
mod scene;
mod stage;
mod table;
mod watch;

pub use killer::Killer;
pub use stage::run;
pub use table::{Row, START_OF_TABLE, table};
pub use watch::watch;

/// The directory of the pods' logs, in memory, because a disk may stall.
const LOGS: &str = "/run/beside";
/// The node is short of memory below this many MiB, and short of tasks below the next number.
const SHORT_MIB: u64 = 100;
const FEW_TASKS: u64 = 150;
