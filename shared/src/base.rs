//! What everything here is made of: locks, the names of plug-ins, tasks that must not die.

pub mod critical;
pub(crate) mod lock;
pub(crate) mod plugin_name;
