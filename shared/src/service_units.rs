//! The seam to the service manager.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::WallTime;
use tokio::sync::broadcast;

/// Transient services of a service manager.
///
/// Every call is bounded in time by the implementer. None of them waits for a service:
/// [`changes`](Self::changes) reports what becomes of it.
pub trait ServiceUnits: Send + Sync + 'static {
    /// Asks for a transient service to be started. Resolves when that was accepted.
    ///
    /// # Errors
    /// See [`UnitError`]. After [`UnitError::Silent`] it may or may not have been started.
    fn start(&self, unit: NewUnit) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Makes a slice whose services together have this share of the CPU, 1 to 10000, beside other slices.
    /// One that is there stays as it is.
    ///
    /// # Errors
    /// See [`UnitError`].
    fn make_slice(
        &self,
        slice: &str,
        description: &str,
        cpu_weight: u64,
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Sends a signal. A unit of which nothing runs takes it without error.
    ///
    /// # Errors
    /// See [`UnitError`].
    fn signal(
        &self,
        unit: &str,
        whom: Whom,
        signal: i32,
    ) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Asks for a service or slice to be stopped: SIGTERM to the main process, SIGKILL to all after its
    /// stop timeout. One that is not there is stopped.
    ///
    /// # Errors
    /// See [`UnitError`].
    fn stop(&self, unit: &str) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// Lets the service manager forget that a service has failed, and with that the service. One that is
    /// not there, or has not failed, is left alone.
    ///
    /// # Errors
    /// See [`UnitError`].
    fn forget_failure(&self, unit: &str) -> impl Future<Output = Result<(), UnitError>> + Send;

    /// A service as it is now; none if it is not loaded.
    ///
    /// # Errors
    /// See [`UnitError`]. The answer is unknown then, not none.
    fn look(&self, unit: &str) -> impl Future<Output = Result<Option<UnitView>, UnitError>> + Send;

    /// All loaded services whose names begin with `prefix`.
    ///
    /// # Errors
    /// See [`UnitError`]. The answer is unknown then, not empty.
    fn list(
        &self,
        prefix: &str,
    ) -> impl Future<Output = Result<Vec<(String, UnitView)>, UnitError>> + Send;

    /// Changes of services. A follower that lags behind lists them again.
    fn changes(&self) -> broadcast::Receiver<UnitChange>;
}

/// A transient service to start.
#[derive(Debug, Default)]
pub struct NewUnit {
    /// Its name, with `.service`.
    pub name: String,
    /// The slice it runs in, with `.slice`.
    pub slice: String,
    /// For people.
    pub description: String,
    /// Program and arguments. Taken as they are: nothing in them is replaced.
    pub argv: Vec<String>,
    /// Standard input; none is `/dev/null`.
    pub input: Option<OwnedFd>,
    /// Standard output.
    pub output: UnitOutput,
    /// Standard error.
    pub error: UnitOutput,
    /// What it may use.
    pub limits: UnitLimits,
    /// What is kept of it when it has ended.
    pub keep: Keep,
    /// The signal that asks it to end, should the service manager itself stop it.
    pub stop_signal: i32,
    /// How long it then has until SIGKILL.
    pub stop_timeout: Duration,
    /// After this long it is stopped; none never does.
    pub max_runtime: Option<Duration>,
    /// Whether it runs on through a soft-reboot; its slice has to do so too.
    pub survives: bool,
    /// A unit that has to be stopped after this one.
    pub after: Option<String>,
    /// How its lines are marked in the journal.
    pub journal: Option<JournalMarks>,
}

/// Where a service's output goes.
#[derive(Debug, Default)]
pub enum UnitOutput {
    /// Nowhere.
    #[default]
    Null,
    /// To the journal.
    Journal,
    /// Into this file descriptor.
    To(OwnedFd),
}

/// What a service may use. None leaves it to the service manager's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitLimits {
    /// Bytes of memory.
    pub memory_max: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    /// Its share of the CPU, 1 to 10000.
    pub cpu_weight: Option<u64>,
    /// Tasks (processes and threads); [`u64::MAX`] for no limit but the node's.
    pub tasks_max: Option<u64>,
}

/// What the service manager keeps of a service that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// How it ended, until it is stopped and its failure forgotten.
    Result,
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing, and it is started again should it fail.
    Alive,
}

/// How a service's lines are marked in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalMarks {
    /// `SYSLOG_IDENTIFIER`.
    pub identifier: String,
    /// Further fields.
    pub fields: Vec<(&'static str, String)>,
}

/// Which processes of a service get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The main process.
    Main,
    /// All.
    All,
}

/// A service as the service manager sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitView {
    /// How far it has come.
    pub phase: UnitPhase,
    /// How its main process ended, if it has.
    pub end: Option<UnitEnd>,
    /// Its main process, while that runs.
    pub main_pid: Option<i32>,
}

/// How far a service has come. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitPhase {
    /// Its program is not executed yet.
    #[default]
    Starting,
    /// Its main process runs.
    Running,
    /// Its main process ended well. What else it started may still run.
    Exited,
    /// It is being stopped.
    Stopping,
    /// Nothing of it runs.
    Over,
}

/// How a service's main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitEnd {
    /// Exit code, or signal.
    pub status: UnitExit,
    /// The kernel ended it, or another process of it, for want of memory.
    pub out_of_memory: bool,
    /// When it started.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub finished_at: Option<WallTime>,
    /// How long it ran, by a clock that does not jump.
    pub ran: Duration,
}

/// What a process ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitExit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What happened to a service.
#[derive(Clone, Debug)]
pub enum UnitChange {
    /// It is like this now.
    Seen {
        /// Its name.
        unit: Arc<str>,
        /// How it is.
        view: UnitView,
    },
    /// It may be unloaded, or loaded anew: look at it.
    Vanished {
        /// Its name.
        unit: Arc<str>,
    },
    /// Changes may have been missed: look at all.
    Missed,
}

/// Why the service manager did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A unit of this name is loaded.
    #[error("{unit} is there already")]
    Exists {
        /// Its name.
        unit: String,
    },
    /// No such unit is loaded.
    #[error("{call}: {unit} is not loaded")]
    Absent {
        /// What it was asked.
        call: &'static str,
        /// Its name.
        unit: String,
    },
    /// It refused.
    #[error("{call}: {why}")]
    Refused {
        /// What it was asked.
        call: &'static str,
        /// What it said.
        why: String,
    },
    /// It cannot be reached or does not answer. Whether it did it is not known.
    #[error("{call}: no answer from the service manager: {why}")]
    Silent {
        /// What it was asked.
        call: &'static str,
        /// What was met instead.
        why: String,
    },
}

// === impl UnitPhase ===

impl UnitPhase {
    /// Whether the main process has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Exited | Self::Over)
    }
}

// === impl UnitExit ===

impl UnitExit {
    /// Exit code as Kubernetes shows it (128 + signal for a signal's victim), and the signal.
    pub fn code(self) -> (i32, Option<i32>) {
        match self {
            Self::Code(code) => (code, None),
            Self::Signal(signal) => (signal.saturating_add(128), Some(signal)),
        }
    }
}
