//! A stand-in for logind, for rehearsals and tests. It never takes a machine down.
//!
//! It answers this crate's calls to logind and systemd, and behaves like the real ones where that matters: a lock is a
//! pipe and is released when its last writer closes it; no lock is granted while a shutdown is under way; a reload
//! applies the drop-ins to the delay, with a lag. It is reached over a socket pair without any bus ([`StandIn::peer`]),
//! or under logind's and systemd's names on a private bus ([`StandIn::serve_on`]).
//!
//! ```no_run
//! # async fn rehearse() {
//! use std::time::Duration;
//! use winddown_shared::ShutdownKind;
//! use winddown_systemd::stand_in::StandIn;
//! use winddown_systemd::{InhibitorConfig, LogindInhibitor};
//!
//! let logind = StandIn::new(Duration::from_secs(30));
//! let mut config = InhibitorConfig::new(Duration::from_secs(30));
//! config.bus = logind.peer();
//! let inhibitor = LogindInhibitor::start(config);
//! // … hand the inhibitor to the shutdown controller, then:
//! let outcome = logind.shutdown(ShutdownKind::PowerOff).await;
//! assert!(outcome.late.is_empty(), "every lock was given back in time");
//! # }
//! ```

mod locks;
mod service;

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use winddown_shared::{Mutex, ShutdownKind};
use zbus::{Connection, Structure, Variant};

pub use self::locks::LockRecord;
pub use self::service::{OnBus, StandInError};
use crate::bus::Bus;
use crate::drop_in;

const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const CHANGED: &str = "PropertiesChanged";

/// A scripted logind. Clones share its state.
#[derive(Clone)]
pub struct StandIn(Arc<StandInShared>);

/// The behaviour of a method of the stand-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// It behaves as logind does.
    #[default]
    Answer,
    /// It never answers.
    Hang,
    /// It answers `org.freedesktop.DBus.Error.Failed`.
    Refuse,
}

/// The outcome of a shutdown of the stand-in.
#[derive(Clone, Debug)]
pub struct ShutdownOutcome {
    /// The time from the signal until a real node would have begun to stop its units.
    pub took: Duration,
    /// The locks that were released, in no particular order.
    pub released: Vec<LockRecord>,
    /// The locks still held after the delay: a real node would not have waited for them.
    pub late: Vec<LockRecord>,
    /// Whether it was cancelled.
    pub cancelled: bool,
}

struct StandInShared {
    inner: Mutex<StandInState>,
    /// Counts the changes of the state, for everything that waits for one.
    changes: watch::Sender<u64>,
}

struct StandInState {
    delay: Duration,
    default_delay: Duration,
    /// The root directory of the drop-ins, and how long a reload takes.
    reload: Option<(PathBuf, Duration)>,
    metadata: bool,
    /// Whether changes are reported by `PropertiesChanged`, and a cancellation by nothing else.
    quiet_cancel: bool,
    preparing: bool,
    /// How the machine goes down.
    kind: ShutdownKind,
    /// The shutdown that is scheduled, and when it begins.
    scheduled: Option<(ShutdownKind, SystemTime)>,
    /// Whether systemd's `SystemState` is `stopping`.
    stopping: bool,
    locks: Vec<LockRecord>,
    connections: Vec<Connection>,
    /// A task for each peer without a bus; `None` after [`StandIn::leave`].
    peers: Option<JoinSet<()>>,
    behaviour: HashMap<&'static str, Behaviour>,
    calls: Vec<String>,
}

// === impl StandIn ===

impl StandIn {
    /// Creates a logind whose `InhibitDelayMaxSec` is `delay`.
    pub fn new(delay: Duration) -> Self {
        let inner = StandInState {
            delay,
            default_delay: delay,
            reload: None,
            metadata: false,
            quiet_cancel: false,
            preparing: false,
            kind: ShutdownKind::Unknown,
            scheduled: None,
            stopping: false,
            locks: Vec::new(),
            connections: Vec::new(),
            peers: Some(JoinSet::new()),
            behaviour: HashMap::new(),
            calls: Vec::new(),
        };
        Self(Arc::new(StandInShared { inner: Mutex::new(inner), changes: watch::Sender::new(0) }))
    }

    /// Makes a reload (`KillUnit` with SIGHUP) read the drop-ins below `root`, `takes` later.
    pub fn reloading_from(self, root: impl Into<PathBuf>, takes: Duration) -> Self {
        self.0.inner.lock().reload = Some((root.into(), takes));
        self
    }

    /// Sends `PrepareForShutdownWithMetadata` as well, and has the property, as logind does since systemd 255.
    pub fn with_metadata(self) -> Self {
        self.0.inner.lock().metadata = true;
        self
    }

    /// Cancels a shutdown without a signal, as logind does for `shutdown -c` since systemd 256: the property
    /// `ScheduledShutdown` changes, and `PreparingForShutdown` becomes false. When a shutdown begins, the change is
    /// reported too, before the signals.
    pub fn cancelling_without_a_signal(self) -> Self {
        self.0.inner.lock().quiet_cancel = true;
        self
    }

    /// Returns a way for an inhibitor of the same process to reach it, without a bus. Each attempt to connect gets a
    /// new connection, and is refused after [`StandIn::leave`]. Must be used inside a tokio runtime.
    pub fn peer(&self) -> Bus {
        let stand_in = self.clone();
        Bus::Peer(Arc::new(move || {
            let mut inner = stand_in.0.inner.lock();
            let peers = inner.peers.as_mut().ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = UnixStream::pair()?;
            while peers.try_join_next().is_some() {}
            peers.spawn(service::serve_peer(stand_in.clone(), ours));
            Ok(theirs)
        }))
    }

    /// Disconnects every peer and accepts no more; resolves when all its tasks have stopped. Call this before the
    /// runtime shuts down: zbus panics if that happens while a server accepts a peer.
    pub async fn leave(&self) {
        let peers = self.0.inner.lock().peers.take();
        if let Some(mut peers) = peers {
            peers.shutdown().await;
        }
    }

    /// Serves on the bus at `address` under the names of logind and systemd, until the result is dropped. Locks and
    /// settings outlive it, as logind's locks outlive its restart.
    ///
    /// # Errors
    /// The bus cannot be reached or does not give us the names.
    pub async fn serve_on(&self, address: &str) -> Result<OnBus, StandInError> {
        service::serve_on(self.clone(), address, &service::NAMES).await
    }

    /// Like [`serve_on`](Self::serve_on), on a bus that has a systemd: under logind's name only.
    ///
    /// # Errors
    /// The bus cannot be reached or does not give us the name.
    pub async fn serve_beside_systemd(&self, address: &str) -> Result<OnBus, StandInError> {
        service::serve_on(self.clone(), address, &[service::LOGIND]).await
    }

    /// Shuts down as logind does: announces the shutdown, and waits until every delay lock for it is released or
    /// `InhibitDelayMaxSec` has passed. Returns the outcome.
    ///
    /// Without any lock, or with a delay of zero, it does not wait.
    pub async fn shutdown(&self, kind: ShutdownKind) -> ShutdownOutcome {
        let began = Instant::now();
        let mut changes = self.0.changes.subscribe();
        let (waited_for, delay) = {
            let mut inner = self.0.inner.lock();
            let waited_for: Vec<u64> =
                inner.locks.iter().filter(|lock| lock.delays_shutdown()).map(|l| l.id).collect();
            (inner.preparing, inner.kind) = (true, kind);
            (waited_for, inner.delay)
        };
        self.announce(true, kind).await;
        let all_gone = changes.wait_for(|_| {
            let inner = self.0.inner.lock();
            let mut awaited = inner.locks.iter().filter(|lock| waited_for.contains(&lock.id));
            !inner.preparing || awaited.all(|lock| lock.released_at.is_some())
        });
        // The state below tells whether this timed out.
        let _ = tokio::time::timeout(delay, all_gone).await;
        let took = began.elapsed();
        let inner = self.0.inner.lock();
        let (released, late) = inner
            .locks
            .iter()
            .filter(|lock| waited_for.contains(&lock.id))
            .cloned()
            .partition(|lock| lock.released_at.is_some());
        let cancelled = !inner.preparing;
        ShutdownOutcome { took, released, late, cancelled }
    }

    /// Cancels the shutdown, as logind does when its job fails or, if
    /// [`cancelling_without_a_signal`](Self::cancelling_without_a_signal) is set, on `shutdown -c`.
    pub async fn cancel(&self) {
        self.prepare_for_shutdown(false).await;
    }

    /// Sets `PreparingForShutdown` and announces it, without waiting for locks.
    pub async fn prepare_for_shutdown(&self, begins: bool) {
        self.set_preparing(begins);
        self.announce(begins, ShutdownKind::PowerOff).await;
    }

    async fn announce(&self, begins: bool, kind: ShutdownKind) {
        let quiet_cancel = self.0.inner.lock().quiet_cancel;
        if quiet_cancel {
            self.emit_change().await;
        }
        if begins || !quiet_cancel {
            self.emit(begins, kind).await;
        }
    }

    /// Reports that `ScheduledShutdown` changed, whatever `PreparingForShutdown` is.
    pub async fn emit_change(&self) {
        let none_is_scheduled = Variant::from(Structure::from(("", u64::MAX)));
        let changed = HashMap::from([("ScheduledShutdown", none_is_scheduled)]);
        let body = (INTERFACE, changed, Vec::<&str>::new());
        for connection in self.connections() {
            let sent = connection.emit_signal(None::<&str>, PATH, PROPERTIES, CHANGED, &body);
            log_unsent(sent.await);
        }
    }

    /// Sets `PreparingForShutdown` without a signal, as seen by a receiver that was not connected. Not async, unlike
    /// [`prepare_for_shutdown`](Self::prepare_for_shutdown): nothing is sent.
    pub fn set_preparing(&self, preparing: bool) {
        self.0.inner.lock().preparing = preparing;
        self.changed();
    }

    /// Schedules a shutdown, or cancels the one that is scheduled. It never begins by itself.
    pub fn schedule(&self, shutdown: Option<(ShutdownKind, SystemTime)>) {
        self.0.inner.lock().scheduled = shutdown;
    }

    /// Sets systemd's `SystemState` to `stopping` or `running`. logind does not know of it, as when a machine is shut
    /// down by starting `poweroff.target`.
    pub fn set_stopping(&self, stopping: bool) {
        self.0.inner.lock().stopping = stopping;
    }

    /// Sends the signal without setting the property. Broken connections are removed.
    pub async fn emit(&self, begins: bool, kind: ShutdownKind) {
        let metadata = self.0.inner.lock().metadata;
        for connection in self.connections() {
            if metadata {
                let body = (begins, HashMap::from([("type", Variant::from(kind_name(kind)))]));
                let member = "PrepareForShutdownWithMetadata";
                let sent = connection.emit_signal(None::<&str>, PATH, INTERFACE, member, &body);
                log_unsent(sent.await);
            }
            let member = "PrepareForShutdown";
            let sent = connection.emit_signal(None::<&str>, PATH, INTERFACE, member, &begins);
            log_unsent(sent.await);
        }
    }

    /// Returns every lock ever granted, oldest first.
    pub fn locks(&self) -> Vec<LockRecord> {
        self.0.inner.lock().locks.clone()
    }

    /// Returns the number of locks held now.
    pub fn held(&self) -> usize {
        self.0.inner.lock().locks.iter().filter(|lock| lock.released_at.is_none()).count()
    }

    /// Resolves when `wanted` returns true for the locks. Cancel-safe.
    pub async fn until_locks(&self, mut wanted: impl FnMut(&[LockRecord]) -> bool) {
        let mut changes = self.0.changes.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|_| wanted(&self.0.inner.lock().locks)).await;
    }

    /// Leaves the locks granted so far out of `ListInhibitors`, like a logind that lost them.
    pub fn forget_locks(&self) {
        for lock in &mut self.0.inner.lock().locks {
            lock.listed = false;
        }
    }

    /// Returns the current `InhibitDelayMaxSec`.
    pub fn delay(&self) -> Duration {
        self.0.inner.lock().delay
    }

    /// Changes `InhibitDelayMaxSec`, and also its default for when no drop-in sets it.
    pub fn set_delay(&self, delay: Duration) {
        let mut inner = self.0.inner.lock();
        inner.delay = delay;
        inner.default_delay = delay;
    }

    /// Sets the behaviour of a method or property (by its D-Bus name) from now on.
    pub fn set_behaviour(&self, member: &'static str, behaviour: Behaviour) {
        self.0.inner.lock().behaviour.insert(member, behaviour);
    }

    /// Returns the calls so far, with their arguments, in the order of arrival.
    pub fn calls(&self) -> Vec<String> {
        self.0.inner.lock().calls.clone()
    }

    fn connections(&self) -> Vec<Connection> {
        let mut inner = self.0.inner.lock();
        inner.connections.retain(|connection| !connection.is_closed());
        inner.connections.clone()
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Handles SIGHUP: reloads the drop-ins after the configured time.
    fn reload(&self) {
        let Some((root, takes)) = self.0.inner.lock().reload.clone() else { return };
        let stand_in = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            let found = tokio::task::spawn_blocking(move || drop_in::find(&root)).await;
            let mut inner = stand_in.0.inner.lock();
            let set = found.ok().flatten().map(|setting| setting.value);
            inner.delay = set.unwrap_or(inner.default_delay);
        });
    }
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.0.inner.lock();
        f.debug_struct("StandIn")
            .field("delay", &inner.delay)
            .field("preparing", &inner.preparing)
            .field("locks", &inner.locks)
            .finish_non_exhaustive()
    }
}

fn kind_name(kind: ShutdownKind) -> &'static str {
    match kind {
        ShutdownKind::Unknown | ShutdownKind::PowerOff => "poweroff",
        ShutdownKind::Halt => "halt",
        ShutdownKind::Reboot => "reboot",
        ShutdownKind::Kexec => "kexec",
        ShutdownKind::SoftReboot => "soft-reboot",
    }
}

fn log_unsent(sent: zbus::Result<()>) {
    if let Err(error) = sent {
        tracing::debug!(
            error = crate::trouble::trouble(&error),
            "a receiver of the stand-in's signal is gone"
        );
    }
}
