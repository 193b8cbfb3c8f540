#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Access to systemd for an agent that must stop its pods before the node goes down.
//!
//! * [`LogindInhibitor`]: holds logind's delay lock, reports shutdowns, and survives restarts of
//!   the bus, of logind and of the agent itself.
//! * [`hold_block`]: makes logind refuse shutdowns.
//! * [`drop_in`]: which file sets logind's `InhibitDelayMaxSec`, and the one winddown writes.
//! * [`Notifier`]: readiness, status, watchdog and the file descriptor store of the service manager.
//! * [`inspect`]: read-only queries to logind and the service manager.
//! * [`units`]: transient services.
//! * [`shutdown_in_progress`]: whether and how the machine goes down, also where that bypasses logind.
//! * `stand_in` (feature `stand-in`): a logind for rehearsals and tests.
//!
//! No other crate of the workspace speaks D-Bus.

mod bus;
pub mod drop_in;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
mod logind;
mod manager;
mod name_owner;
mod notify;
mod own_socket;
#[cfg(feature = "stand-in")]
pub mod stand_in;
mod system_state;
mod trouble;
pub mod units;

// In the version of the types in signatures.
pub use zbus;

pub use bus::Bus;
#[cfg(feature = "stand-in")]
pub use bus::PeerConnector;
pub use logind::{InhibitorConfig, LogindInhibitor, hold_block};
pub use notify::{InheritedError, LOCK_NAME, LockStore, NoStore, Notifier};
pub use system_state::{SystemStateError, shutdown_in_progress};
