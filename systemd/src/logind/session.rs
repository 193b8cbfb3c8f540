//! What the supervisor needs from any login manager.
//!
//! The bus is behind this seam so that the supervisor's behaviour in time (restarts, hangs, races)
//! is tested on a paused clock, without sockets.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use winddown_shared::ShutdownKind;

/// Opens sessions with the login manager.
pub(crate) trait LoginManager: Send + Sync + 'static {
    /// The calling half of a session.
    type Calls: LoginCalls;

    /// Opens one connection that already hears the signals when this resolves. Everything it
    /// opened is closed again when it fails or is dropped.
    fn connect(&self) -> impl Future<Output = Result<Session<Self::Calls>, CallError>> + Send;
}

/// One connection: dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Session<C> {
    /// Makes calls.
    pub(crate) calls: C,
    /// What is heard, in the order of arrival; ends with the connection.
    pub(crate) heard: mpsc::Receiver<LogindEvent>,
}

/// The calls. Each is bounded in time by the implementer, and dropping one is safe: a lock granted
/// to a dropped call is closed unseen.
pub(crate) trait LoginCalls: Send + Sync + 'static {
    /// Reads `PreparingForShutdown`.
    fn preparing(&self) -> impl Future<Output = Result<bool, CallError>> + Send;

    /// Reads `InhibitDelayMaxUSec`, never from a cache: it is declared constant and is not.
    fn delay(&self) -> impl Future<Output = Result<Duration, CallError>> + Send;

    /// Takes a delay lock for shutdown.
    fn inhibit(
        &self,
        who: &str,
        why: &str,
    ) -> impl Future<Output = Result<OwnedFd, CallError>> + Send;

    /// Looks for our lock in `ListInhibitors`.
    fn listed(&self, who: &str) -> impl Future<Output = Result<Listed, CallError>> + Send;

    /// Reads what users are told of the shutdown that is under way, and how the node goes down where a call that
    /// came just now says so. What cannot be read is left out.
    fn request(&self) -> impl Future<Output = (Option<String>, ShutdownKind)> + Send;

    /// Has logind read its configuration again. Returns before it has.
    fn reload(&self) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// Something the login manager, or the bus about it, told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogindEvent {
    /// `PrepareForShutdown`, from the owner of the name. A hint: the property has the last word.
    Prepare {
        /// What it said.
        begins: bool,
        /// How the node goes down, if the signal carried it.
        kind: ShutdownKind,
        /// When it arrived.
        at: Instant,
    },
    /// The owner of the name says that a property which goes with a shutdown changed. It claims nothing;
    /// since systemd 256 this is the only sign of a shutdown that is called off.
    Changed {
        /// When it arrived.
        at: Instant,
    },
    /// The login manager left the bus.
    Gone,
    /// The login manager is back, as a new process.
    Back,
}

/// Whether a lock of ours is in the login manager's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// With our name and our process id.
    Ours,
    /// With our name, taken by another process: this agent before a restart, for one.
    UnderAnotherPid,
    /// No lock with our name.
    No,
    /// The login manager keeps no list that it would show.
    Unknown,
}

/// Why a call did not give what was asked for.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum CallError {
    /// There is no bus, or no login manager on it.
    #[error("{call}: there is no login manager here ({detail})")]
    Absent {
        /// The call.
        call: &'static str,
        /// What was missing.
        detail: String,
    },
    /// The operation to inhibit is already under way.
    #[error("{call}: refused, a shutdown is already under way")]
    InProgress {
        /// The call.
        call: &'static str,
    },
    /// An error reply.
    #[error("{call}: {detail}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The error's name and text.
        detail: String,
    },
    /// No reply in time.
    #[error("{call}: no answer within {after:?}")]
    Timeout {
        /// The call.
        call: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The connection broke, or was never there.
    #[error("{call}: connection to the bus failed ({detail})")]
    Connection {
        /// The call.
        call: &'static str,
        /// What happened to it.
        detail: String,
    },
    /// A reply of the wrong type.
    #[error("{call}: malformed answer ({detail})")]
    Malformed {
        /// The call.
        call: &'static str,
        /// What is wrong with it.
        detail: String,
    },
}

/// Ends what reads a connection, and with it the connection.
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
