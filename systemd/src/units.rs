//! Transient services, through the service manager.
//!
//! # Behaviour
//! * One connection, kept up: when it breaks, a new one is made, and followers learn that they may
//!   have missed changes. A call waits for a connection as long as for an answer.
//! * A service's state is put together from the signals that carry it, so learning of an end costs
//!   no call. Signals are believed of the owner of systemd's name alone.
//! * The reader of signals never waits for anyone: however many services change at once, answers to calls
//!   are not held up behind them.
//!
//! # Limits
//! * Signals of other services wake the reader; they are dropped by their path, unread.

mod client;
mod error;
#[cfg(debug_assertions)]
pub(crate) mod fuzzing;
mod path;
mod properties;
mod signals;
mod state;
#[cfg(test)]
mod tests;

pub use client::UnitsClient;
