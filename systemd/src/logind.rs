//! Holds logind's delay lock, across restarts and failures.

mod block;
mod bus;
mod plan;
mod raise_inhibit_delay;
mod session;
mod supervisor;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use winddown_shared::{Inhibitor, InhibitorState, LockState, MachineState, critical, error_chain};

pub use self::block::hold_block;
use self::bus::BusLogin;
#[cfg(any(test, fuzzing))]
pub(crate) use self::bus::fuzzing as bus_fuzzing;
pub(crate) use self::bus::{proxies, read_scheduled};
use self::session::LoginManager;
use self::supervisor::{Supervisor, supervise};
use crate::bus::Bus;
use crate::notify::{LockStore, NoStore, Notifier};
use crate::system_state::in_progress_on;

/// How long systemd may take to answer whether the machine is going down.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long logind may take to answer who waits for its delay.
const DELAY_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of a [`LogindInhibitor`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use winddown_systemd::{InhibitorConfig, LogindInhibitor, Notifier};
///
/// # async fn hold() -> Result<(), Box<dyn std::error::Error>> {
/// let notifier = Notifier::from_env();
/// let mut config = InhibitorConfig::of_service(&notifier, Duration::from_secs(30));
/// config.who = "my-agent".to_owned();
/// let inhibitor = LogindInhibitor::start(config);
/// notifier.ready();
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct InhibitorConfig {
    /// The delay that the shutdown plan needs. If logind's delay is shorter, a drop-in raises it to this value; the
    /// drop-in is removed when no longer needed. Zero takes the lock without a drop-in.
    pub wanted_delay: Duration,
    /// The root directory for reading and writing logind's configuration. `None` means `/` if [`bus`](Self::bus) is the
    /// system bus; for any other logind, the configuration and the delay are then left alone.
    pub root: Option<PathBuf>,
    /// The name of the lock's holder, as `systemd-inhibit --list` shows it and the logind drop-in has it.
    pub who: String,
    /// The reason, as `systemd-inhibit --list` shows it.
    pub why: String,
    /// The timeout of one call and of connecting. After a timeout the connection is reopened.
    pub method_timeout: Duration,
    /// How often to check the delay, and that the lock is still listed, without a signal.
    pub recheck: Duration,
    /// The bus on which logind is reached.
    pub bus: Bus,
    /// A lock that an earlier process of this agent took. It is used until a new one is granted, then dropped.
    pub inherited_lock: Option<OwnedFd>,
    /// The store that keeps a copy of the lock across a crash.
    pub store: Arc<dyn LockStore>,
}

/// Holds logind's delay lock for shutdown and reports when the node goes down.
///
/// A task of its own does the work; dropping the last clone aborts it and closes the lock (a copy in the [`LockStore`]
/// stays). No failure of logind or the bus stops the task: it reconnects with a backoff of 100 ms to 5 s.
#[derive(Clone)]
pub struct LogindInhibitor(Arc<Handle>);

struct Handle {
    state: watch::Receiver<InhibitorState>,
    requests: mpsc::UnboundedSender<Request>,
    refused: Arc<AtomicU64>,
    supervisor: JoinHandle<()>,
    bus: Bus,
}

/// A request from the owner of the inhibitor to the supervisor.
#[derive(Debug)]
enum Request {
    /// Release the lock, if the shutdown of this epoch is still under way.
    Release { epoch: u64 },
    /// Change the delay that the plan needs.
    WantDelay(Duration),
    /// Read the delay again, which no signal announces, and drop this.
    ReadDelay(oneshot::Sender<()>),
}

// === impl InhibitorConfig ===

impl InhibitorConfig {
    /// Returns the settings for a service. systemd keeps a copy of the lock while the program is restarted, also after a crash,
    /// if the unit has `FileDescriptorStoreMax=`; the lock that an earlier process left is taken over by the first call.
    pub fn of_service(notifier: &Notifier, wanted_delay: Duration) -> Self {
        let inherited_lock = notifier.take_inherited_lock().unwrap_or_else(|error| {
            tracing::warn!(
                error = error_chain(&error),
                "a lock kept over the restart cannot be used; taking a new one"
            );
            None
        });
        Self { inherited_lock, store: Arc::new(notifier.clone()), ..Self::new(wanted_delay) }
    }

    /// Returns the settings for the node's own logind. The lock is released when the process exits, also after a crash: see
    /// [`of_service`](Self::of_service).
    pub fn new(wanted_delay: Duration) -> Self {
        Self {
            wanted_delay,
            root: None,
            who: "winddown".to_owned(),
            why: "Terminates the pods of this node in order before it goes down".to_owned(),
            method_timeout: Duration::from_secs(5),
            recheck: Duration::from_secs(60),
            bus: Bus::System,
            inherited_lock: None,
            store: Arc::new(NoStore),
        }
    }

    /// Returns the root directory of this logind's configuration; `None` when it is unknown.
    fn configuration_root(&self) -> Option<&Path> {
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
        let bus = config.bus.clone();
        let supervisor = Supervisor::new(config, state_tx, requests_rx, Arc::clone(&refused));
        let supervisor = critical::spawn("login manager", supervise(login, supervisor));
        Self(Arc::new(Handle { state, requests, refused, supervisor, bus }))
    }

    /// Changes the wanted delay, e.g. after a reload of the configuration. Applied as soon as logind can be reached and
    /// no shutdown is under way.
    pub fn set_wanted_delay(&self, wanted: Duration) {
        // The supervisor stops only when this handle is dropped.
        let _ = self.0.requests.send(Request::WantDelay(wanted));
    }

    /// Returns how many shutdown signals were rejected so far because the sender was not logind, the body was
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
            // The supervisor answers each release of a running shutdown with `Released`. An error means that the
            // supervisor has stopped, and closed the lock.
            let _ = state
                .wait_for(|now| {
                    !now.preparing || now.epoch != epoch || now.lock == LockState::Released
                })
                .await;
        };
        release.boxed()
    }

    fn look_again(&self) -> BoxFuture<'_, ()> {
        let read = async {
            let (read, is_read) = oneshot::channel();
            let _ = self.0.requests.send(Request::ReadDelay(read));
            let _ = timeout(DELAY_TIMEOUT, is_read).await;
        };
        read.boxed()
    }

    fn machine(&self) -> BoxFuture<'_, MachineState> {
        let ask = async {
            match in_progress_on(&self.0.bus, MACHINE_TIMEOUT).await {
                Ok(Some(way)) => MachineState::GoingDown(way),
                Ok(None) => MachineState::StaysUp,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!("whether the machine goes down counts as unknown: {error}");
                    MachineState::Unknown
                }
            }
        };
        ask.boxed()
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

/// How a failed call is told.
#[cfg(test)]
pub(crate) fn translated(error: &zbus::Error) -> String {
    bus::translate("Inhibit", error, Duration::from_secs(5)).to_string()
}

#[cfg(test)]
mod tests;
