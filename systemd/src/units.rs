//! Transient services, run by the service manager.
//!
//! # Behaviour
//! * One connection, which is reopened when it breaks; subscribers are then notified that they may have missed changes.
//!   A call waits for a connection as long as for an answer.
//! * A service's state is assembled from the signals that carry it, so noticing an exit costs no call. Only signals
//!   from the owner of systemd's name are trusted.
//! * The reader of signals never waits: however many services change at once, replies to calls are not held up behind
//!   them.
//!
//! # Limits
//! * Signals of other services wake the reader, which drops them by their path, unread.

mod client;
mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod path;
mod properties;
mod signals;
mod state;
#[cfg(test)]
mod tests;

pub use client::UnitsClient;
#[cfg(test)]
pub(crate) use error::sorted;
