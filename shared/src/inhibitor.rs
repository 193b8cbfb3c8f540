//! The seam to the service that announces the node's shutdown and can be asked to wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::WallTime;

/// What the login manager (logind, or a stand-in) last told, and whether it waits for us.
///
/// This is state, not a stream of events: a reader that was busy sees where things stand now, and
/// nothing can arrive out of order. `epoch` tells two shutdowns apart that a slow reader saw as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InhibitorState {
    /// Whether the delay lock is held, and if not, why.
    pub lock: LockState,
    /// A shutdown is under way (logind's `PreparingForShutdown`): the signal came from the name's owner and
    /// the property confirmed it.
    #[doc(alias = "PreparingForShutdown")]
    pub preparing: bool,
    /// Counts the shutdowns seen; goes up by one each time `preparing` turns true.
    pub epoch: u64,
    /// When `preparing` last turned true; the budget counts from here.
    pub since: Option<tokio::time::Instant>,
    /// How the node goes down, where the login manager says so.
    pub kind: ShutdownKind,
    /// What the login manager knows of who wanted it, once it was asked.
    pub request: Option<Arc<ShutdownRequest>>,
    /// The longest time the login manager will wait (`InhibitDelayMaxSec`), once known.
    pub delay: Option<Duration>,
    /// The file that set `delay`, when it is less than what was asked for.
    pub delay_set_by: Option<Arc<str>>,
}

impl InhibitorState {
    /// Nothing known yet: no lock, no shutdown.
    pub fn unknown() -> Self {
        Self {
            lock: LockState::Waiting { why: "not connected yet".into() },
            preparing: false,
            epoch: 0,
            since: None,
            kind: ShutdownKind::Unknown,
            request: None,
            delay: None,
            delay_set_by: None,
        }
    }
}

/// Whether the node's shutdown waits for this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The lock is held and the login manager lists it.
    Held,
    /// Not held; being tried again. The text says what stands in the way.
    Waiting {
        /// What stands in the way, for people.
        why: Arc<str>,
    },
    /// Given back on purpose after the pods were ended; the node may go down.
    Released,
    /// There is no login manager on this node (or none is wanted): a shutdown cannot be delayed.
    Absent {
        /// Why there is none, for people.
        why: Arc<str>,
    },
}

impl LockState {
    /// Whether it is known how things stand: the lock is not merely waited for.
    pub fn is_known(&self) -> bool {
        !matches!(self, LockState::Waiting { .. })
    }
}

/// How the node goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownKind {
    /// The login manager did not say: systemd before 255, unless it was asked to go down at once.
    #[default]
    Unknown,
    /// Power off.
    PowerOff,
    /// Stop, with the power left on.
    Halt,
    /// Restart through the firmware.
    Reboot,
    /// Restart straight into another kernel.
    Kexec,
    /// Restart of user space only.
    SoftReboot,
}

impl ShutdownKind {
    /// As reports have it: `powerOff`, `halt`, `reboot`, `kexec`, `softReboot`; or `unknown`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::PowerOff => "powerOff",
            Self::Halt => "halt",
            Self::Reboot => "reboot",
            Self::Kexec => "kexec",
            Self::SoftReboot => "softReboot",
        }
    }
}

/// What a login manager knows of who wanted a shutdown. It does not say who called it at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// What the caller wanted users to be told.
    pub message: Option<Arc<str>>,
    /// The time that a shutdown is, or was, scheduled for. One that lies ahead is another shutdown.
    pub scheduled_for: Option<WallTime>,
    /// The user who scheduled it.
    pub scheduled_by: Option<u32>,
}

/// Why shutdowns are refused, for those who ask for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownBlock {
    /// On whose account.
    pub who: String,
    /// The reason, until when, and what to do about it.
    pub why: String,
}

/// Delays the node's shutdown until [`release`](Self::release).
///
/// The implementer takes the lock by itself, takes it again after a cancelled shutdown and after
/// every reconnect, and never stops trying. It answers readers through a watch channel, so that a
/// slow or hung login manager cannot block them.
pub trait Inhibitor: Send + Sync + 'static {
    /// The current state and its changes. The sender outlives the agent's use of it.
    fn state(&self) -> watch::Receiver<InhibitorState>;

    /// Lets the node go down. Idempotent within one shutdown; does nothing when none is under way.
    ///
    /// Resolves when the lock's last descriptor is closed. Cancel-safe.
    fn release(&self) -> BoxFuture<'_, ()>;
}
