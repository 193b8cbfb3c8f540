//! A node as a service of systemd.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use winddown_control::HealthApi as _;
use winddown_host::{PodFiles, beat};
use winddown_shared::critical::{self, TaskFailure};
use winddown_shared::{Runtime, WayDown, error_chain};
use winddown_systemd::{InhibitorConfig, Notifier, shutdown_in_progress};

use crate::{Node, Product, ShutdownHandle};

/// A login manager that has not been reached for this long counts as unavailable for now. The service is then ready
/// without the lock, which is still tried for.
pub const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);

/// Number of threads for disk I/O. Each thread that is used costs memory that the allocator does not return; with this
/// many, some are left for the agent's own files even if all mounts of pods hang, and several disks.
const DISK_THREADS: usize = PodFiles::MOST_THREADS + 6;

/// How long the process waits at its exit for threads that are blocked on a disk.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// How long a thread that waits for a disk is kept: longer than between two looks, and not by much. They take turns.
const DISK_THREAD_KEPT: Duration = Duration::from_secs(21);

/// The interval of ticks without a watchdog; one per hour costs nothing.
const IDLE_TICK: Duration = Duration::from_secs(3600);

/// For how long a service manager that stops this service is asked whether the machine is going down. Its answer may
/// take six seconds more.
const SYSTEMD_PATIENCE: Duration = Duration::from_secs(8);

/// Added to the plan's time when the service manager is asked to extend the stop timeout. The node waits ten seconds
/// longer than the plan wants, after the question how the machine goes down, which may take fourteen.
const STOP_SLACK: Duration = Duration::from_secs(25);

/// The process as a service: what systemd hands it, and what it tells systemd. From a shell it does the same, and tells
/// nothing.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use winddown_node::shared::testing::FakeRuntime;
/// use winddown_node::shutdown::Policy;
/// use winddown_node::systemd::LogindInhibitor;
/// use winddown_node::{Node, Product, SystemdService, Shutdown};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let product = Product::new("my-agent", env!("CARGO_PKG_VERSION"));
/// let service = SystemdService::new(&product)?;
/// let policy = Policy::default();
/// let logind = LogindInhibitor::start(service.inhibitor(policy.delay_wanted()));
/// let shutdown = Shutdown::new(Arc::new(logind), policy, "/var/lib/my-agent");
/// let handle = shutdown.handle();
/// let node = Node::builder(Arc::new(FakeRuntime::default()))
///     .product(product)
///     .plugin(shutdown)
///     .start()?;
/// service.run(&node, &handle).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SystemdService {
    product: Product,
    notifier: Notifier,
    terminate: Signal,
    interrupt: Signal,
}

impl SystemdService {
    /// The service of this name. SIGTERM and SIGINT are handled from here on: [`run`](Self::run) waits for them. Must be
    /// called inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// The signals cannot be handled.
    pub fn new(product: &Product) -> io::Result<Self> {
        Ok(Self {
            product: product.clone(),
            notifier: Notifier::from_env(),
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// What it tells systemd.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// The settings of a lock in the name of the product, which systemd keeps while the agent is restarted.
    pub fn inhibitor(&self, wanted_delay: Duration) -> InhibitorConfig {
        let mut wanted = InhibitorConfig::of_service(&self.notifier, wanted_delay);
        wanted.who = self.product.name().to_owned();
        wanted
    }

    /// Runs until SIGTERM or SIGINT, and then stops the node. Its pods continue, unless the machine is going down: then
    /// they are ended first.
    ///
    /// Tells systemd that the service is ready when the lock is held or known to be unavailable, and feeds the watchdog
    /// while the node makes progress.
    ///
    /// # Errors
    /// A task that the node depends on has failed. Let the process exit, so that systemd restarts it: the pods run on, and
    /// the next agent resumes a shutdown.
    pub async fn run<R: Runtime>(
        mut self,
        node: &Node<R>,
        shutdown: &ShutdownHandle,
    ) -> Result<(), TaskFailure> {
        let mut lock = shutdown.lock();
        let mut watchdog = watchdog(&self.notifier);
        let mut patience = std::pin::pin!(sleep(UNAVAILABLE_AFTER));
        let mut ready = false;
        loop {
            if !ready && (lock.borrow_and_update().lock.is_known() || patience.is_elapsed()) {
                ready = true;
                self.notifier.ready();
            }
            tokio::select! {
                () = &mut patience, if !ready => {}
                failure = critical::first_failure() => return Err(failure.clone()),
                changed = lock.changed(), if !ready => if changed.is_err() { break },
                _ = watchdog.tick() => if node.health().ok() { self.notifier.watchdog_ping() },
                _ = self.terminate.recv() => break,
                _ = self.interrupt.recv() => break,
            }
        }
        end(&self.notifier, node, shutdown).await;
        Ok(())
    }
}

/// Runs `work`, an agent, on a runtime with two worker threads: one slow task must not delay a shutdown. Waits at most half
/// a second afterwards for threads that are blocked on a disk: a dead one must not keep the process alive.
///
/// # Errors
/// The threads cannot be started.
pub fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    beat::begin();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(DISK_THREADS)
        .thread_keep_alive(DISK_THREAD_KEPT)
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(result)
}

/// Ticks as often as the service manager wants to hear that the service is alive.
pub fn watchdog(notifier: &Notifier) -> Interval {
    let every = notifier.watchdog_interval().unwrap_or(IDLE_TICK);
    let mut ticks = interval_at(beat::due(Instant::now(), every), beat::period(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Stops the node because its service is stopped, and ends its pods first if the machine is going down.
pub async fn end<R: Runtime>(notifier: &Notifier, node: &Node<R>, shutdown: &ShutdownHandle) {
    notifier.stopping();
    let end = async {
        shutdown.end_pods_if_going_down(going_down()).await;
        node.shut_down().await;
    };
    notifier.extend_timeout(shutdown.delay_wanted() + STOP_SLACK, end).await;
}

/// How the machine is going down. If that stays unknown, the stop is taken for a restart of the agent: ending the pods of
/// a node that stays up is the greater harm.
async fn going_down() -> Option<WayDown> {
    shutdown_in_progress(SYSTEMD_PATIENCE).await.unwrap_or_else(|error| {
        let error = error_chain(&error);
        tracing::warn!(error, "taken for a restart of the agent: no pod is asked to terminate");
        None
    })
}
