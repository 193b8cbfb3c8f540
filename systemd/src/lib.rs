//! systemd, seen from an agent that must end its pods before the node goes down.
//!
//! * [`LogindInhibitor`]: holds logind's delay lock, learns that the node goes down, and survives
//!   restarts of the bus, of logind and of the agent itself.
//! * [`hold_block`]: has logind refuse shutdowns.
//! * [`drop_in`]: which file sets logind's `InhibitDelayMaxSec`, and the one winddown writes.
//! * [`Notifier`]: readiness, status, watchdog and the file descriptor store of the service manager.
//! * [`inspect`]: a look at logind and the service manager that changes nothing.
//! * [`units`]: transient services.
//! * [`InhibitorSocket`]: lets other programs of the node delay its shutdown.
//! * [`way_down`]: whether the machine goes down on a way that bypasses logind, and which.
//! * `stand_in` (feature `stand-in`): a logind for rehearsals and tests.
//!
//! No other crate of the workspace speaks D-Bus.

pub mod drop_in;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
mod logind;
mod manager;
mod notify;
mod shutdown_socket;
#[cfg(feature = "stand-in")]
pub mod stand_in;
mod system_state;
pub mod units;

#[cfg(feature = "stand-in")]
pub use logind::PeerConnector;
pub use logind::{Bus, InhibitorConfig, LogindInhibitor, hold_block};
pub use notify::{InheritedError, LOCK_NAME, LockStore, NoStore, Notifier};
pub use shutdown_socket::{Accept, InhibitorSocket};
pub use system_state::{SystemStateError, way_down};
