//! Pod statuses: how they are computed from the runtime's state, and where they are kept.

mod conditions;
mod containers;
mod generate;
pub(crate) mod lame_duck;
pub(crate) mod phase;
mod store;
#[cfg(test)]
mod tests;

pub use containers::pending_containers;
pub(crate) use containers::shows;
pub use generate::{StatusInput, generate};
pub use phase::{PodPhase, Restart, is_terminal};
pub use store::{StatusEntry, StatusStore};
