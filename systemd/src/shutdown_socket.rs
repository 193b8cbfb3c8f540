//! A unix socket on which locks are handed out and shutdowns announced, without logind: lines of JSON, and a lock that
//! is an open connection. `examples/shutdown-socket` is the protocol.

mod lines;
mod server;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::ShutdownKind;

use crate::drop_in::INFINITY;

pub(crate) use lines::{LineError, Lines};
pub use server::{Accept, InhibitorSocket};

const VERSION: &str = "winddown.dev/v1alpha1";

/// A line with its version.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<T> {
    api_version: String,
    #[serde(flatten)]
    line: T,
}

/// The first line of a connection, and the only one of the side that connects. Fields of later versions are passed
/// over, here and below.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Request {
    /// How do things stand, and what changes?
    Watch,
    /// A lock.
    Inhibit(Inhibit),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Inhibit {
    pub(crate) who: String,
    #[serde(default)]
    pub(crate) why: String,
    /// Whose turn it shares, where the other side ends pods.
    #[serde(default, skip_serializing_if = "Turn::is_last")]
    pub(crate) turn: Turn,
}

/// When the holder of a lock is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::enum_variant_names, reason = "these are the protocol's words")]
pub(crate) enum Turn {
    /// Before the first pod ends.
    BeforePods,
    /// When ordinary pods have ended.
    BeforeSystemPods,
    /// When all pods have ended.
    #[default]
    AfterPods,
}

/// A line of the side that listens.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Answer {
    /// How things stand: the first line to who watches, and another at each change.
    Shutdown(Shutdown),
    /// The connection is a lock from now on.
    Granted { id: u64 },
    /// There is no lock to be had.
    Refused { reason: String },
    /// To who holds a lock: it is waited for now, for so long.
    Turn { seconds: f64 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shutdown {
    /// A shutdown is under way.
    pub(crate) preparing: bool,
    /// The longest time that a lock is waited for once a shutdown has begun.
    pub(crate) delay_seconds: f64,
    /// As reports have it: `powerOff`, `reboot`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// What people are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The locks that are held; left out, it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inhibitors: Option<Vec<Holder>>,
}

/// A lock that is held.
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

// === impl Shutdown ===

impl Shutdown {
    /// None if it is no length of time. A very long one is [`INFINITY`], which clocks can still count.
    pub(crate) fn delay(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.delay_seconds).ok().map(|delay| delay.min(INFINITY))
    }

    pub(crate) fn kind(&self) -> ShutdownKind {
        use ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot, Unknown};
        let named = |kind: &ShutdownKind| Some(kind.as_str()) == self.kind.as_deref();
        [PowerOff, Halt, Reboot, Kexec, SoftReboot].into_iter().find(named).unwrap_or(Unknown)
    }
}
