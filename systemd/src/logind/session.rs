//! The traits that the supervisor needs from any login manager.
//!
//! The bus is behind these traits so that the supervisor's behaviour over time (restarts, hangs, races) can be tested
//! on a paused clock, without sockets.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use winddown_shared::{ScheduledShutdown, ShutdownKind};

/// Opens sessions with the login manager.
pub(crate) trait LoginManager: Send + Sync + 'static {
    /// The calling half of a session.
    type Calls: LoginCalls;

    /// Opens one connection, which already receives signals when this resolves. If this fails or is dropped, everything
    /// that it opened is closed.
    fn connect(&self)
    -> impl Future<Output = Result<Session<Self::Calls>, LogindCallError>> + Send;
}

/// One connection. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Session<C> {
    pub(crate) calls: C,
    /// The events, in the order of arrival; closed with the connection.
    pub(crate) heard: mpsc::Receiver<LogindEvent>,
    /// Whether the login manager was on the bus when the connection was opened; an event says so once it comes.
    pub(crate) is_there: bool,
}

/// The calls to a login manager. The implementer bounds each in time. All are cancel-safe: a lock granted to a
/// cancelled call is closed.
// Over the limit because it is a table: one row per method and property of logind that is used.
pub(crate) trait LoginCalls: Send + Sync + 'static {
    /// Reads `PreparingForShutdown`.
    fn preparing(&self) -> impl Future<Output = Result<bool, LogindCallError>> + Send;

    /// Reads `InhibitDelayMaxUSec`, never from a cache: it is declared constant, but it changes.
    fn delay(&self) -> impl Future<Output = Result<Duration, LogindCallError>> + Send;

    /// Takes a delay lock for shutdown.
    fn inhibit(
        &self,
        who: &str,
        why: &str,
    ) -> impl Future<Output = Result<OwnedFd, LogindCallError>> + Send;

    /// Checks whether `ListInhibitors` shows our lock.
    fn listed(&self, who: &str) -> impl Future<Output = Result<Listed, LogindCallError>> + Send;

    /// Reads the message to users about the current shutdown, and its kind. Values that cannot be read are left out.
    fn request(&self) -> impl Future<Output = (Option<String>, KindRead)> + Send;

    /// Reads the shutdown that is scheduled, and the kind of an immediate one; none of what cannot be read.
    fn scheduled(&self) -> impl Future<Output = (Option<ScheduledShutdown>, ShutdownKind)> + Send;

    /// Makes logind reload its configuration. Resolves before the reload is complete.
    fn reload(&self) -> impl Future<Output = Result<(), LogindCallError>> + Send;
}

/// The kind of the current shutdown, and where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindRead {
    /// In `PreparingForShutdownWithMetadata`. Unknown if that could not be read.
    Announced(ShutdownKind),
    /// In `ScheduledShutdown`, of an immediate shutdown, where nothing is announced. It says `reboot` of a soft reboot.
    Scheduled(ShutdownKind),
}

/// An event reported by the login manager, or by the bus about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogindEvent {
    /// `PrepareForShutdown`, from the owner of the name. A hint: the property decides.
    Prepare {
        /// Whether a shutdown begins or was cancelled.
        begins: bool,
        /// How the node goes down, if the signal carried it.
        kind: ShutdownKind,
        /// The time of arrival.
        at: Instant,
    },
    /// The owner of the name reports that a property related to shutdowns changed, but not how. Since systemd 256 this
    /// is the only sign of a cancelled shutdown.
    Changed {
        /// The time of arrival.
        at: Instant,
    },
    /// The login manager left the bus.
    Gone,
    /// The login manager is back on the bus, as a new process.
    Back,
}

/// Whether the login manager lists a lock of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Listed with our name and our process ID.
    Ours,
    /// Listed with our name, but taken by another process, e.g. by this agent before a restart.
    UnderAnotherPid,
    /// No lock with our name is listed.
    No,
    /// The login manager does not provide a list.
    Unknown,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum LogindCallError {
    /// There is no bus, or no login manager on it.
    #[error("there is no login manager here ({detail})")]
    Absent { call: &'static str, detail: String },
    /// A shutdown is already under way, so no lock is granted.
    #[error("{call}: refused, a shutdown is already under way")]
    InProgress { call: &'static str },
    /// The login manager replied with an error.
    #[error("{call}: {detail}")]
    Refused {
        call: &'static str,
        /// The error's name and text.
        detail: String,
    },
    /// No reply arrived in time.
    #[error("{call}: no answer within {after:?}")]
    Timeout { call: &'static str, after: Duration },
    /// The connection broke or could not be opened.
    #[error("{call}: connection to the bus failed ({detail})")]
    Connection { call: &'static str, detail: String },
    /// The reply has the wrong type.
    #[error("{call}: malformed answer ({detail})")]
    Malformed { call: &'static str, detail: String },
}

/// Aborts the task that reads a connection, which closes the connection.
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
