//! What everything here is made of: clocks, text for people, locks, tasks that must not die.

pub mod critical;
pub(crate) mod lock;
pub(crate) mod plugin_name;
