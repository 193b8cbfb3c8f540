//! The interface to the service that announces the node's shutdown and can be asked to delay it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::WallTime;

/// The state last reported by the login manager (logind, or a stand-in), and whether it waits for this agent.
///
/// This is state, not a stream of events: a slow reader sees the current state, and nothing can
/// arrive out of order. `epoch` distinguishes two shutdowns that a slow reader would see as one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InhibitorState {
    /// Whether the delay lock is held, and if not, the reason.
    pub lock: LockState,
    /// Whether this agent has the lock, also while the login manager cannot be asked: it waits for each lock that is held.
    pub has_lock: bool,
    /// Whether a shutdown is in progress (logind's `PreparingForShutdown`): the signal came from
    /// the owner of the bus name, and the property confirmed it.
    #[doc(alias = "PreparingForShutdown")]
    pub preparing: bool,
    /// The number of shutdowns seen; incremented whenever `preparing` becomes true.
    pub epoch: u64,
    /// When `preparing` last became true; the budget counts from here.
    pub since: Option<tokio::time::Instant>,
    /// How the node goes down, if the login manager reports it.
    pub kind: ShutdownKind,
    /// What the login manager knows of the requester, once it was queried.
    pub request: Option<Arc<ShutdownRequest>>,
    /// The longest delay that the login manager grants (`InhibitDelayMaxSec`), once known: it is read after `preparing`.
    pub delay: Option<Duration>,
    /// The file that sets `delay`, if that is less than what was requested.
    pub delay_set_by: Option<Arc<str>>,
    /// Whether this is a stand-in for a login manager, for which no shutdown of the machine waits.
    pub is_rehearsal: bool,
    /// The shutdown that is scheduled (`shutdown +60`), if the login manager reports one.
    pub scheduled: Option<Arc<ScheduledShutdown>>,
}

impl InhibitorState {
    /// The initial state: no lock, no shutdown.
    pub fn unknown() -> Self {
        Self {
            lock: LockState::Waiting { why: "not connected yet".into() },
            has_lock: false,
            preparing: false,
            epoch: 0,
            since: None,
            kind: ShutdownKind::Unknown,
            request: None,
            delay: None,
            delay_set_by: None,
            is_rehearsal: false,
            scheduled: None,
        }
    }

    /// Whether the login manager has said whether a shutdown is in progress. One that is absent has not, and may only be
    /// late.
    pub fn has_spoken(&self) -> bool {
        let is_taken = matches!(self.lock, LockState::Held | LockState::Released);
        self.preparing || is_taken || self.delay.is_some()
    }
}

/// Whether the node's shutdown waits for this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The lock is held and the login manager lists it.
    Held,
    /// Not held; the agent keeps retrying.
    Waiting {
        /// The obstacle, for people.
        why: Arc<str>,
    },
    /// Released on purpose once the pods were terminated; the node may go down.
    Released,
    /// There is no login manager on this node, or none is wanted: a shutdown cannot be delayed.
    Absent {
        /// The reason, for people.
        why: Arc<str>,
    },
}

impl LockState {
    /// Whether the state is settled: the lock is not just being waited for.
    pub fn is_known(&self) -> bool {
        !matches!(self, LockState::Waiting { .. })
    }
}

/// How the node goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownKind {
    /// The login manager did not report it: systemd before 255, except when asked to go down at once.
    #[default]
    Unknown,
    /// Power off.
    PowerOff,
    /// Halt, with the power left on.
    Halt,
    /// Restart through the firmware.
    Reboot,
    /// Restart directly into another kernel.
    Kexec,
    /// Restart of user space only.
    SoftReboot,
}

impl ShutdownKind {
    /// The name in reports: `powerOff`, `halt`, `reboot`, `kexec`, `softReboot`, or `unknown`.
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

/// A shutdown that begins at a certain time, unless it is cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledShutdown {
    /// When it begins.
    pub at: WallTime,
    /// How the node goes down.
    pub kind: ShutdownKind,
    /// The message for users that the caller gave.
    pub message: Option<Arc<str>>,
}

/// What a login manager knows of the requester of a shutdown. It does not report who requested an immediate one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// The message for users that the caller gave.
    pub message: Option<Arc<str>>,
    /// The time for which a shutdown is, or was, scheduled. A time in the future belongs to another shutdown.
    pub scheduled_for: Option<WallTime>,
    /// The user who scheduled it.
    pub scheduled_by: Option<u32>,
}

/// Why shutdowns are blocked, for those who request one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownBlock {
    /// The holder of the block, as shown to users: `winddown: pod default/web`.
    pub who: String,
    /// The reason, until when, and what to do about it.
    pub why: String,
}

/// Whether the machine is going down, as the service manager sees it: also past the login manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineState {
    /// There is no answer. This never means that the machine stays up.
    #[default]
    Unknown,
    /// It stays up.
    StaysUp,
    /// It is going down in this way.
    GoingDown(WayDown),
}

/// How the machine goes down, as the service manager says; the login manager need not have announced it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayDown {
    /// How the node goes down.
    pub kind: ShutdownKind,
    /// After this time, the service manager waits for nothing any more (`JobTimeoutSec=`), if it said so.
    pub limit: Option<Duration>,
}

/// Delays the node's shutdown until [`release`](Self::release).
///
/// The implementer takes the lock, takes it again after a cancelled shutdown and after every reconnect, and never stops
/// retrying. It serves readers through a watch channel, so that a slow or hung login manager cannot block them.
pub trait Inhibitor: Send + Sync + 'static {
    /// The current state and its changes. The sender outlives the agent's use of it. Clone what `borrow` returns before an
    /// await: the implementer, which waits until it is dropped, would hang.
    fn state(&self) -> watch::Receiver<InhibitorState>;

    /// Lets the node go down. Idempotent within one shutdown; does nothing if none is in progress.
    ///
    /// Resolves when the lock's last descriptor is closed. Cancel-safe.
    fn release(&self) -> BoxFuture<'_, ()>;

    /// Brings up to date what [`state`](Self::state) says and nothing announces, such as the delay. Resolves within a second,
    /// with or without an answer. Cancel-safe. By default the state is always up to date.
    fn look_again(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether the machine is going down, also without an announcement. An agent that finds an unfinished run and hears of
    /// no shutdown asks this before it takes the run for cancelled. Resolves within seconds; by default it is unknown.
    fn machine(&self) -> BoxFuture<'_, MachineState> {
        Box::pin(std::future::ready(MachineState::Unknown))
    }
}
