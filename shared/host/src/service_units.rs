//! The interface to the service manager.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use winddown_shared::WallTime;

/// Transient services of a service manager.
///
/// Every call is bounded in time by the implementer. None of them waits for a service:
/// [`changes`](Self::changes) reports its progress.
// Over the limit because it is a table: one row per request to the service manager.
pub trait ServiceUnits: Send + Sync + 'static {
    /// Requests the start of a transient service. Resolves when the request was accepted.
    ///
    /// # Errors
    /// See [`UnitError`]. After [`UnitError::Silent`] the service may or may not have been started.
    fn start(&self, unit: NewUnit) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Creates a slice whose services together have this CPU weight, 1 to 10000, relative to other
    /// slices. An existing slice gets the weight: its pod may have had another spec.
    fn make_slice(
        &self,
        slice: &str,
        description: &str,
        cpu_weight: u64,
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Sets the CPU weight of a slice, 1 to 10000, until the next boot. The slice is loaded if it is not.
    fn weigh_slice(
        &self,
        slice: &str,
        cpu_weight: u64,
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Sends a signal. If nothing of the unit runs, this succeeds.
    fn signal(
        &self,
        unit: &str,
        whom: KillWhom,
        signal: i32,
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Requests the stop of a service or slice: SIGTERM to the main process, SIGKILL to all after
    /// its stop timeout. One that does not exist counts as stopped.
    fn stop(&self, unit: &str) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Resets the failed state of a service, so that the service manager unloads it. One that does
    /// not exist, or has not failed, is left alone.
    fn forget_failure(&self, unit: &str) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// The current state of a service; `None` if it is not loaded.
    ///
    /// # Errors
    /// See [`UnitError`]. The state is unknown then, not `None`.
    fn look(&self, unit: &str) -> impl Future<Output = Result<Option<UnitView>, UnitError>> + Send;

    /// All loaded services whose names start with `prefix`.
    ///
    /// # Errors
    /// See [`UnitError`]. The list is unknown then, not empty.
    fn list(
        &self,
        prefix: &str,
    ) -> impl Future<Output = Result<Vec<(String, UnitView)>, UnitError>> + Send;

    /// The socket at which other programs reach the same service manager; `None` if this program is its only client.
    fn socket(&self) -> Option<PathBuf> {
        None
    }

    /// Changes of services. A receiver that lagged has to list them again.
    fn changes(&self) -> broadcast::Receiver<UnitChange>;
}

/// A transient service to start.
// Over the limit because each field is a property that the transient unit is created with.
#[derive(Debug, Default)]
pub struct NewUnit {
    /// Its name, with `.service`.
    pub name: String,
    /// The slice it runs in, with `.slice`.
    pub slice: String,
    /// A description for people.
    pub description: String,
    /// The program and its arguments, used verbatim: nothing in them is expanded.
    pub argv: Vec<String>,
    /// Standard input; `None` means `/dev/null`.
    pub input: Option<OwnedFd>,
    /// Standard output.
    pub output: UnitOutput,
    /// Standard error.
    pub error: UnitOutput,
    /// Its resource limits.
    pub limits: UnitLimits,
    /// What to keep of it once it has exited.
    pub keep: Keep,
    /// The signal that the service manager sends to stop it.
    pub stop_signal: i32,
    /// The time that it then has until SIGKILL.
    pub stop_timeout: Duration,
    /// The time after which it is stopped; `None` means never.
    pub max_runtime: Option<Duration>,
    /// Whether it keeps running through a soft-reboot; its slice has to do so too.
    pub survives: bool,
    /// A unit that has to be stopped after this one.
    pub after: Option<String>,
    /// A unit that has to be stopped before this one when the machine goes down. While it stops, this one cannot be
    /// started.
    pub before: Option<String>,
    /// The identification of its lines in the journal.
    pub journal: Option<JournalMarks>,
}

/// The destination of a service's output.
#[derive(Debug, Default)]
pub enum UnitOutput {
    /// Discarded.
    #[default]
    Null,
    /// The journal.
    Journal,
    /// This file descriptor.
    To(OwnedFd),
}

/// Resource limits of a service. `None` leaves a limit to the service manager's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitLimits {
    /// Memory in bytes.
    pub memory_max: Option<u64>,
    /// CPU in thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// CPU weight, 1 to 10000.
    pub cpu_weight: Option<u64>,
    /// Tasks (processes and threads); [`u64::MAX`] for no limit but the node's.
    pub tasks_max: Option<u64>,
}

/// What the service manager keeps of a service that has exited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Its result, until it is stopped and its failed state reset.
    Result,
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing, and it is restarted if it fails.
    Alive,
}

/// The identification of a service's lines in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalMarks {
    /// `SYSLOG_IDENTIFIER`.
    pub identifier: String,
    /// Further fields.
    pub fields: Vec<(&'static str, String)>,
}

/// Which processes of a service get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillWhom {
    /// The main process.
    Main,
    /// All.
    All,
}

/// The state of a service as the service manager reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitView {
    /// Its phase.
    pub phase: UnitPhase,
    /// How its main process exited, if it has.
    pub end: Option<UnitEnd>,
    /// The PID of its main process while that runs.
    pub main_pid: Option<i32>,
    /// The time between SIGTERM and SIGKILL that it was started with.
    pub stop_timeout: Option<Duration>,
}

/// The phase of a service. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitPhase {
    /// Its program has not been executed yet.
    #[default]
    Starting,
    /// Its main process runs.
    Running,
    /// Its main process exited successfully. Other processes of it may still run.
    Exited,
    /// It is being stopped.
    Stopping,
    /// Nothing of it runs.
    Over,
}

/// How a service's main process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitEnd {
    /// Exit code, or signal.
    pub status: UnitExit,
    /// Whether the kernel killed it, or another process of the service, for lack of memory.
    pub out_of_memory: bool,
    /// Whether the service manager was stopping the service before it exited.
    pub stopped: bool,
    /// When it started.
    pub started_at: Option<WallTime>,
    /// When it exited.
    pub finished_at: Option<WallTime>,
    /// How long it ran, by a clock that does not jump.
    pub ran: Duration,
}

/// The exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitExit {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

/// A change of a service.
#[derive(Clone, Debug)]
pub enum UnitChange {
    /// The service was reported with this state.
    Seen {
        /// Its name.
        unit: Arc<str>,
        /// Its state.
        view: UnitView,
    },
    /// The service may have been unloaded, or loaded again: query it.
    Vanished {
        /// Its name.
        unit: Arc<str>,
    },
    /// Changes may have been missed: query all services.
    Missed,
}

/// Why the service manager did not carry out a request.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A unit with this name is already loaded.
    #[error("{unit} already exists")]
    Exists {
        /// Its name.
        unit: String,
    },
    /// No unit with this name is loaded.
    #[error("{call}: {unit} is not loaded")]
    Absent {
        /// The request.
        call: &'static str,
        /// Its name.
        unit: String,
    },
    /// The request was refused.
    #[error("{call}: {why}")]
    Refused {
        /// The request.
        call: &'static str,
        /// The reply.
        why: String,
    },
    /// The service manager cannot be reached or does not answer. Whether it carried out the request is unknown.
    #[error("{call}: no answer from the service manager: {why}")]
    Silent {
        /// The request.
        call: &'static str,
        /// The error.
        why: String,
    },
}

// === impl UnitPhase ===

impl UnitPhase {
    /// Whether the main process has exited.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Exited | Self::Over)
    }
}

// === impl UnitExit ===

impl UnitExit {
    /// The exit code as Kubernetes shows it (128 + signal number for a process killed by a signal), and the signal.
    pub fn code(self) -> (i32, Option<i32>) {
        match self {
            Self::Code(code) => (code, None),
            Self::Signal(signal) => (signal.saturating_add(128), Some(signal)),
        }
    }
}
