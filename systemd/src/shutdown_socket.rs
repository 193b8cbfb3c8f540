//! The protocol of a unix socket that grants locks and announces shutdowns, without logind: lines of JSON, and an open
//! connection as the lock. `docs/examples/shutdown-socket` documents it.

mod lines;
mod server;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::ShutdownKind;

use crate::drop_in::INFINITY;

pub(crate) use lines::{SocketLineError, SocketLines};
pub use server::{Accept, InhibitorSocket};

const VERSION: &str = "winddown.dev/v1alpha1";

/// A line with its API version.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<T> {
    api_version: String,
    #[serde(flatten)]
    line: T,
}

/// A request: the first line of a connection, and the only one that the client sends. Unknown fields are ignored, here
/// and below, for later versions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum SocketRequest {
    /// Requests the current state and its changes.
    Watch,
    /// Requests a lock.
    Inhibit(Inhibit),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Inhibit {
    pub(crate) who: String,
    #[serde(default)]
    pub(crate) why: String,
    /// The turn at which a server that stops pods waits for the holder.
    #[serde(default, skip_serializing_if = "Turn::is_last")]
    pub(crate) turn: Turn,
}

/// The point of a shutdown that waits for the holder of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::enum_variant_names, reason = "these are the protocol's words")]
pub(crate) enum Turn {
    /// Before the first pod is stopped.
    BeforePods,
    /// After ordinary pods have terminated.
    BeforeSystemPods,
    /// After all pods have terminated.
    #[default]
    AfterPods,
}

/// A line that the server sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum SocketAnswer {
    /// The current state: the first line to a watching client, and another one at each change.
    Shutdown(ShutdownMessage),
    /// The lock was granted: the connection is the lock from now on.
    Granted { id: u64 },
    /// No lock is granted.
    Refused { reason: String },
    /// The holder's turn has begun: the shutdown waits for the lock this long.
    Turn { seconds: f64 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShutdownMessage {
    /// Whether a shutdown is under way.
    pub(crate) preparing: bool,
    /// The longest time that a shutdown waits for a lock.
    pub(crate) delay_seconds: f64,
    /// The kind of shutdown as in reports, e.g. `powerOff` or `reboot`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The message to users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The held locks; left out if the server does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inhibitors: Option<Vec<Holder>>,
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) id: u64,
    pub(crate) who: String,
}

// === impl Turn ===

impl Turn {
    fn is_last(&self) -> bool {
        *self == Self::default()
    }
}

// === impl ShutdownMessage ===

impl ShutdownMessage {
    /// Returns the delay, at most [`INFINITY`], which can still be added to an instant; `None` if it is not a valid
    /// duration.
    pub(crate) fn delay(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.delay_seconds).ok().map(|delay| delay.min(INFINITY))
    }

    pub(crate) fn kind(&self) -> ShutdownKind {
        use ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot, Unknown};
        let named = |kind: &ShutdownKind| Some(kind.as_str()) == self.kind.as_deref();
        [PowerOff, Halt, Reboot, Kexec, SoftReboot].into_iter().find(named).unwrap_or(Unknown)
    }
}
