//! Holds logind's delay lock, across restarts and failures.

mod block;
mod bus;
mod plan;
mod raise_inhibit_delay;
mod session;
mod socket;
mod supervisor;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use winddown_shared::{Inhibitor, InhibitorState, LockState, critical};

pub use self::block::hold_block;
pub use self::bus::Bus;
use self::bus::BusLogin;
#[cfg(feature = "stand-in")]
pub use self::bus::PeerConnector;
#[cfg(debug_assertions)]
pub(crate) use self::bus::fuzzing as bus_fuzzing;
pub(crate) use self::bus::proxies;
use self::session::LoginManager;
use self::socket::SocketLogin;
use self::supervisor::{Keeper, supervise};
use crate::notify::{LockStore, NoStore};

/// How to hold the lock.
pub struct InhibitorConfig {
    /// The delay that the shutdown plan needs. If logind's delay is shorter, a drop-in asks for
    /// this much; it is removed when no longer needed. Zero takes the lock without a drop-in.
    pub wanted_delay: Duration,
    /// What stands for `/` when logind's configuration is read and written. None: `/`, if [`bus`](Self::bus)
    /// is the machine's; the configuration of any other logind is then left alone, and its delay as it is.
    pub root: Option<PathBuf>,
    /// Who holds the lock, as `systemd-inhibit --list` shows it.
    pub who: String,
    /// Why, in the same place.
    pub why: String,
    /// How long one call may take; also bounds the connecting. After a timeout the connection is
    /// reopened.
    pub method_timeout: Duration,
    /// How often to check that the lock is still listed, and logind's delay, without a signal of a
    /// change.
    pub recheck: Duration,
    /// Where logind is.
    pub bus: Bus,
    /// The unix socket on which a program of the node's owner announces shutdowns, in place of logind; `bus` and
    /// `root` are not used then. Its server runs as root or as this user, or is not believed. The protocol is in
    /// examples/shutdown-socket.
    pub socket: Option<PathBuf>,
    /// A lock taken by an earlier process of this agent. It is used until a new one is granted, and
    /// dropped then.
    pub inherited_lock: Option<OwnedFd>,
    /// Keeps a copy of the lock across a crash.
    pub store: Arc<dyn LockStore>,
}

/// Holds logind's delay lock for shutdown and tells when the node goes down.
///
/// Its own task does the work; dropping the last clone ends it and closes the lock (a copy in the
/// [`LockStore`] stays). Nothing of what logind or the bus do ends it: it connects again, with
/// pauses of 100 ms to 5 s, for as long as it lives.
#[derive(Clone)]
pub struct LogindInhibitor(Arc<Handle>);

struct Handle {
    state: watch::Receiver<InhibitorState>,
    requests: mpsc::UnboundedSender<Request>,
    refused: Arc<AtomicU64>,
    supervisor: JoinHandle<()>,
}

/// What the owner of the inhibitor asks of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Close the lock, if the shutdown of this epoch is still under way.
    Release { epoch: u64 },
    /// The plan needs another delay.
    WantDelay(Duration),
}

// === impl InhibitorConfig ===

impl InhibitorConfig {
    /// The node's own logind, with everything else as a service would have it.
    pub fn new(wanted_delay: Duration) -> Self {
        Self {
            wanted_delay,
            root: None,
            who: "winddown".to_owned(),
            why: "Ends the pods of this node in order before it goes down".to_owned(),
            method_timeout: Duration::from_secs(5),
            recheck: Duration::from_secs(60),
            bus: Bus::System,
            socket: None,
            inherited_lock: None,
            store: Arc::new(NoStore),
        }
    }

    /// Where the configuration of this logind is; none when that is not known.
    fn configuration_root(&self) -> Option<&Path> {
        if self.socket.is_some() {
            return None;
        }
        let of_machine = matches!(self.bus, Bus::System).then_some(Path::new("/"));
        self.root.as_deref().or(of_machine)
    }
}

impl fmt::Debug for InhibitorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InhibitorConfig")
            .field("wanted_delay", &self.wanted_delay)
            .field("root", &self.root)
            .field("who", &self.who)
            .field("method_timeout", &self.method_timeout)
            .field("bus", &self.bus)
            .field("socket", &self.socket)
            .field("inherited_lock", &self.inherited_lock)
            .finish_non_exhaustive()
    }
}

// === impl LogindInhibitor ===

impl LogindInhibitor {
    /// Starts holding the lock. Returns at once; see [`state`](Inhibitor::state).
    ///
    /// Must be called inside a tokio runtime with I/O and time enabled.
    pub fn start(config: InhibitorConfig) -> Self {
        let refused = Arc::new(AtomicU64::new(0));
        if let Some(path) = config.socket.clone() {
            let login = SocketLogin { path, timeout: config.method_timeout };
            return Self::start_with(login, config, refused);
        }
        let login = BusLogin {
            bus: config.bus.clone(),
            method_timeout: config.method_timeout,
            refused: Arc::clone(&refused),
        };
        Self::start_with(login, config, refused)
    }

    fn start_with(
        login: impl LoginManager,
        config: InhibitorConfig,
        refused: Arc<AtomicU64>,
    ) -> Self {
        let (state_tx, state) = watch::channel(InhibitorState::unknown());
        let (requests, requests_rx) = mpsc::unbounded_channel();
        let keeper = Keeper::new(config, state_tx, requests_rx, Arc::clone(&refused));
        let supervisor = critical::spawn("login manager", supervise(login, keeper));
        Self(Arc::new(Handle { state, requests, refused, supervisor }))
    }

    /// Asks for another delay, as after a reload of the configuration. Applied as soon as logind
    /// can be reached and no shutdown is under way.
    pub fn set_wanted_delay(&self, wanted: Duration) {
        // The supervisor is gone only when this handle is.
        let _ = self.0.requests.send(Request::WantDelay(wanted));
    }

    /// How many shutdown signals were rejected so far: the sender was not logind, the body was
    /// malformed, or logind's own state disagreed.
    pub fn refused_signals(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Inhibitor for LogindInhibitor {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.0.state.clone()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        let release = async {
            let mut state = self.0.state.clone();
            let epoch = {
                let now = state.borrow();
                if !now.preparing || now.lock == LockState::Released {
                    return;
                }
                now.epoch
            };
            if self.0.requests.send(Request::Release { epoch }).is_err() {
                return;
            }
            // The supervisor answers each release of a running shutdown with `Released`. An error:
            // the supervisor is gone, and the lock with it.
            let _ = state
                .wait_for(|now| {
                    !now.preparing || now.epoch != epoch || now.lock == LockState::Released
                })
                .await;
        };
        release.boxed()
    }
}

impl fmt::Debug for LogindInhibitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogindInhibitor").field(&*self.0.state.borrow()).finish()
    }
}

// === impl Handle ===

impl Drop for Handle {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

#[cfg(test)]
mod tests;
