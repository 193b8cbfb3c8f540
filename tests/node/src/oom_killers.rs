//! Programs that end others when memory runs short, each alone with the same culprits.

mod killer;
mod scene;
mod stage;
mod table;
mod watch;

pub use killer::Killer;
pub use stage::run;
pub use table::{Row, START_OF_TABLE, table};
pub use watch::watch;

/// Where each pod writes its log, in memory: a disk may stall.
const LOGS: &str = "/run/beside";
/// So little memory, in MiB, is short, and so few tasks.
const SHORT_MIB: u64 = 100;
const FEW_TASKS: u64 = 150;
