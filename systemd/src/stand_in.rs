//! A stand-in for logind, for rehearsals and tests. It never takes a machine down.
//!
//! It answers what this crate asks of logind and systemd, the way the real ones do where that
//! matters: a lock is a pipe and is given back when its last writer closes it; no lock is granted
//! while a shutdown is under way; the delay follows the drop-ins on a reload, and late. Reached
//! over a socket pair without any bus ([`StandIn::peer`]), or under logind's and systemd's names
//! on a bus of one's own ([`StandIn::serve_on`]).
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use winddown_shared::{ShutdownKind, error_chain};
use zbus::{Connection, Structure, Variant};

pub use self::locks::LockRecord;
pub use self::service::{OnBus, StandInError};
use crate::drop_in;
use crate::logind::Bus;

const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const CHANGED: &str = "PropertiesChanged";

/// A scripted logind. Clones share it.
#[derive(Clone)]
pub struct StandIn(Arc<Shared>);

/// What a method of the stand-in does when it is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// What logind does.
    #[default]
    Answer,
    /// It never answers.
    Hang,
    /// It answers `org.freedesktop.DBus.Error.Failed`.
    Refuse,
}

/// How a shutdown of the stand-in went.
#[derive(Clone, Debug)]
pub struct ShutdownOutcome {
    /// From the signal to the moment at which a real node would have begun to stop its units.
    pub took: Duration,
    /// The locks that were given back, in no particular order.
    pub released: Vec<LockRecord>,
    /// The locks that were still held when the delay was over: a real node would not have waited.
    pub late: Vec<LockRecord>,
    /// It was called off.
    pub cancelled: bool,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Goes up with every change that [`StandIn::shutdown`] waits for.
    changes: watch::Sender<u64>,
}

struct Inner {
    delay: Duration,
    default_delay: Duration,
    /// Where the drop-ins are, and how long a reload takes.
    reload: Option<(PathBuf, Duration)>,
    metadata: bool,
    /// What changes is told by `PropertiesChanged`, and a cancel by nothing else.
    quiet_cancel: bool,
    preparing: bool,
    /// systemd's own idea: the units are being stopped.
    stopping: bool,
    locks: Vec<LockRecord>,
    connections: Vec<Connection>,
    /// One task for each inhibitor without a bus; none when it has left.
    peers: Option<JoinSet<()>>,
    behaviour: HashMap<&'static str, Behaviour>,
    calls: Vec<String>,
}

// === impl StandIn ===

impl StandIn {
    /// A logind whose `InhibitDelayMaxSec` is `delay`.
    pub fn new(delay: Duration) -> Self {
        let inner = Inner {
            delay,
            default_delay: delay,
            reload: None,
            metadata: false,
            quiet_cancel: false,
            preparing: false,
            stopping: false,
            locks: Vec::new(),
            connections: Vec::new(),
            peers: Some(JoinSet::new()),
            behaviour: HashMap::new(),
            calls: Vec::new(),
        };
        Self(Arc::new(Shared { inner: Mutex::new(inner), changes: watch::Sender::new(0) }))
    }

    /// Makes a reload (`KillUnit` with SIGHUP) read the drop-ins below `root`, `takes` later.
    pub fn reloading_from(self, root: impl Into<PathBuf>, takes: Duration) -> Self {
        self.lock().reload = Some((root.into(), takes));
        self
    }

    /// Sends `PrepareForShutdownWithMetadata` as well, as logind does since systemd 255.
    pub fn with_metadata(self) -> Self {
        self.lock().metadata = true;
        self
    }

    /// Calls a shutdown off without a signal, as logind does for `shutdown -c` since systemd 256: the
    /// property `ScheduledShutdown` changes, and `PreparingForShutdown` is no longer true. When a
    /// shutdown begins the change is told as well, before the signals.
    pub fn cancelling_without_a_signal(self) -> Self {
        self.lock().quiet_cancel = true;
        self
    }

    /// How an inhibitor of the same process reaches it, without a bus. Each attempt to connect gets
    /// a connection of its own, and is refused after [`StandIn::leave`]. Must be used inside a tokio
    /// runtime.
    pub fn peer(&self) -> Bus {
        let stand_in = self.clone();
        Bus::Peer(Arc::new(move || {
            let mut inner = stand_in.lock();
            let peers = inner.peers.as_mut().ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = UnixStream::pair()?;
            while peers.try_join_next().is_some() {}
            peers.spawn(service::serve_peer(stand_in.clone(), ours));
            Ok(theirs)
        }))
    }

    /// Hangs up on every peer and accepts no more; resolves when nothing of it runs. zbus panics when a
    /// runtime ends while a server accepts a peer, so whoever ends the runtime calls this first.
    pub async fn leave(&self) {
        let peers = self.lock().peers.take();
        if let Some(mut peers) = peers {
            peers.shutdown().await;
        }
    }

    /// Serves on the bus at `address` under the names of logind and systemd, until the result is
    /// dropped. Locks and settings outlive it, as logind's outlive its restart.
    ///
    /// # Errors
    /// The bus cannot be reached or does not give us the names.
    pub async fn serve_on(&self, address: &str) -> Result<OnBus, StandInError> {
        service::serve_on(self.clone(), address).await
    }

    /// Goes down as logind does: announces the shutdown, waits until every delay lock for it is
    /// given back or `InhibitDelayMaxSec` is over, and says which it was.
    ///
    /// Without any lock, or with a delay of zero, it does not wait.
    pub async fn shutdown(&self, kind: ShutdownKind) -> ShutdownOutcome {
        let began = Instant::now();
        let mut changes = self.0.changes.subscribe();
        let (waited_for, delay) = {
            let mut inner = self.lock();
            let waited_for: Vec<u64> =
                inner.locks.iter().filter(|lock| lock.delays_shutdown()).map(|l| l.id).collect();
            inner.preparing = true;
            (waited_for, inner.delay)
        };
        self.announce(true, kind).await;
        let all_gone = changes.wait_for(|_| {
            let inner = self.lock();
            let mut awaited = inner.locks.iter().filter(|lock| waited_for.contains(&lock.id));
            !inner.preparing || awaited.all(|lock| lock.released_at.is_some())
        });
        // Either is an answer: what matters is how things stand now.
        let _ = tokio::time::timeout(delay, all_gone).await;
        let took = began.elapsed();
        let inner = self.lock();
        let (released, late) = inner
            .locks
            .iter()
            .filter(|lock| waited_for.contains(&lock.id))
            .cloned()
            .partition(|lock| lock.released_at.is_some());
        let cancelled = !inner.preparing;
        ShutdownOutcome { took, released, late, cancelled }
    }

    /// Calls the shutdown off, as logind does when its job fails or, if it is
    /// [`cancelling_without_a_signal`](Self::cancelling_without_a_signal), on `shutdown -c`.
    pub async fn cancel(&self) {
        self.prepare_for_shutdown(false).await;
    }

    /// Sets `PreparingForShutdown` and tells of it; waits for nothing.
    pub async fn prepare_for_shutdown(&self, begins: bool) {
        self.set_preparing(begins);
        self.announce(begins, ShutdownKind::PowerOff).await;
    }

    async fn announce(&self, begins: bool, kind: ShutdownKind) {
        let quiet_cancel = self.lock().quiet_cancel;
        if quiet_cancel {
            self.emit_change().await;
        }
        if begins || !quiet_cancel {
            self.emit(begins, kind).await;
        }
    }

    /// Tells that `ScheduledShutdown` changed, whatever `PreparingForShutdown` is.
    pub async fn emit_change(&self) {
        let none_is_scheduled = Variant::from(Structure::from(("", u64::MAX)));
        let changed = HashMap::from([("ScheduledShutdown", none_is_scheduled)]);
        let body = (INTERFACE, changed, Vec::<&str>::new());
        for connection in self.connections() {
            let sent = connection.emit_signal(None::<&str>, PATH, PROPERTIES, CHANGED, &body);
            log_unsent(sent.await);
        }
    }

    /// Sets `PreparingForShutdown` without a signal: what a receiver sees that was not connected.
    pub fn set_preparing(&self, preparing: bool) {
        self.lock().preparing = preparing;
        self.changed();
    }

    /// Makes systemd's `SystemState` be `stopping` or `running`. logind knows nothing of it, as when
    /// a machine is taken down by starting `poweroff.target`.
    pub fn set_stopping(&self, stopping: bool) {
        self.lock().stopping = stopping;
    }

    /// Sends the signal without setting the property. Connections that broke are forgotten.
    pub async fn emit(&self, begins: bool, kind: ShutdownKind) {
        let metadata = self.lock().metadata;
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

    /// Every lock ever granted, the oldest first.
    pub fn locks(&self) -> Vec<LockRecord> {
        self.lock().locks.clone()
    }

    /// How many locks are held now.
    pub fn held(&self) -> usize {
        self.lock().locks.iter().filter(|lock| lock.released_at.is_none()).count()
    }

    /// Resolves when `wanted` is true of the locks. Cancel-safe.
    pub async fn until_locks(&self, mut wanted: impl FnMut(&[LockRecord]) -> bool) {
        let mut changes = self.0.changes.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|_| wanted(&self.lock().locks)).await;
    }

    /// Leaves the locks granted so far out of `ListInhibitors`, as a logind that lost them.
    pub fn forget_locks(&self) {
        for lock in &mut self.lock().locks {
            lock.listed = false;
        }
    }

    /// `InhibitDelayMaxSec` as it is now.
    pub fn delay(&self) -> Duration {
        self.lock().delay
    }

    /// Changes `InhibitDelayMaxSec`, also what holds when no drop-in sets it.
    pub fn set_delay(&self, delay: Duration) {
        let mut inner = self.lock();
        inner.delay = delay;
        inner.default_delay = delay;
    }

    /// Makes a method or property (by its D-Bus name) behave in another way from now on.
    pub fn set_behaviour(&self, member: &'static str, behaviour: Behaviour) {
        self.lock().behaviour.insert(member, behaviour);
    }

    /// The calls so far, with their arguments, in the order of arrival.
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    fn connections(&self) -> Vec<Connection> {
        let mut inner = self.lock();
        inner.connections.retain(|connection| !connection.is_closed());
        inner.connections.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Takes SIGHUP: the drop-ins are read again, a little later.
    fn reload(&self) {
        let Some((root, takes)) = self.lock().reload.clone() else { return };
        let stand_in = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(takes).await;
            let found = tokio::task::spawn_blocking(move || drop_in::find(&root)).await;
            let mut inner = stand_in.lock();
            let set = found.ok().flatten().map(|setting| setting.value);
            inner.delay = set.unwrap_or(inner.default_delay);
        });
    }
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
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
        tracing::debug!(error = error_chain(&error), "a receiver of the stand-in's signal is gone");
    }
}
