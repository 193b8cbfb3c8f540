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
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod path;
mod properties;
mod signals;
mod state;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use client::UnitsClient;
pub use error::ServiceError;
pub use state::{ServiceEnd, ServicePhase, ServiceState};

/// A transient service to start.
#[derive(Debug, Default)]
pub struct TransientService {
    /// Its name, with `.service`.
    pub name: String,
    /// Its slice, with `.slice`; made if it is not there.
    pub slice: String,
    /// For people.
    pub description: String,
    /// Program and arguments; neither variables nor specifiers in them are replaced.
    pub argv: Vec<String>,
    /// Standard input; none is `/dev/null`.
    pub input: Option<OwnedFd>,
    /// Standard output.
    pub output: ServiceOutput,
    /// Standard error.
    pub error: ServiceOutput,
    /// `MemoryMax`, in bytes.
    pub memory_max: Option<u64>,
    /// `CPUQuota`, in thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    /// `CPUWeight`, 1 to 10000.
    pub cpu_weight: Option<u64>,
    /// `TasksMax`.
    pub tasks_max: Option<u64>,
    /// What is kept of it when it has ended.
    pub keep: ServiceKeep,
    /// `KillSignal`.
    pub stop_signal: i32,
    /// `TimeoutStopSec`.
    pub stop_timeout: Duration,
    /// `RuntimeMaxSec`.
    pub max_runtime: Option<Duration>,
    /// Units that are stopped before this one. It is started after them.
    pub before: Vec<String>,
    /// Units that are stopped after this one.
    pub after: Vec<String>,
    /// `SyslogIdentifier`.
    pub journal_identifier: Option<String>,
    /// `LogExtraFields`.
    pub journal_fields: Vec<(String, String)>,
}

/// Where a service's output goes.
#[derive(Debug, Default)]
pub enum ServiceOutput {
    /// Nowhere.
    #[default]
    Null,
    /// To the journal.
    Journal,
    /// Into this file descriptor.
    To(OwnedFd),
}

/// What systemd keeps of an ended service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceKeep {
    /// Its state: `RemainAfterExit`, and a failed unit stays loaded.
    Result,
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing, and it is started again should it fail.
    Alive,
}

/// What happened to a service.
#[derive(Clone, Debug)]
pub enum ServiceChange {
    /// It is like this now.
    Seen {
        /// Its name.
        unit: Arc<str>,
        /// How it is.
        state: ServiceState,
    },
    /// It was unloaded, perhaps only to be loaded again by a reload.
    Removed {
        /// Its name.
        unit: Arc<str>,
    },
    /// Changes may have been missed.
    Missed,
}
