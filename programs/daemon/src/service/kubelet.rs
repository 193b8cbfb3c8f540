//! The systemd service of the kubelet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc::SIGTERM;
use tokio::sync::broadcast;
use tokio::time::timeout;
use winddown_companion::kubelet::processes::{NamedKubelets, Stranger, kubelets};
use winddown_companion::kubelet::service;
use winddown_host::service_units::{
    KillWhom, ServiceUnits, UnitChange, UnitError, UnitPhase, UnitView,
};
use winddown_host::{Durability, OneThread, replace_private};
use winddown_shared::Mutex;
use winddown_systemd::Bus;
use winddown_systemd::units::UnitsClient;

use super::shims::shows_machine;

/// How long systemd may take to answer.
const SYSTEMD_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long systemd may take to begin with a stop, unless it holds it back.
const STOP_BEGINS_WITHIN: Duration = Duration::from_millis(500);
/// How long the kubelet may take to exit. It waits for nothing on SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How long reading the machine's processes may take.
const PROCESSES_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct KubeletService {
    /// A file that is there while this agent has the service stopped, so that the next agent starts it again.
    mark: PathBuf,
    /// Its name, once the machine has said it.
    name: Mutex<Option<Arc<str>>>,
    reading: OneThread,
    /// Whether the service was seen running, by this agent or the one that stopped it.
    ran: AtomicBool,
}

/// The service's name, and a connection to systemd. That is not kept: it is needed when the machine goes down.
struct KubeletUnit {
    name: Arc<str>,
    systemd: UnitsClient,
}

/// Why the kubelet's service could not be stopped or started.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletError {
    #[error("no {unit} runs on this machine")]
    NoService { unit: Arc<str> },
    /// systemd did not stop it, or did not answer.
    #[error("systemd does not stop {unit}")]
    NotStopped { unit: Arc<str>, source: UnitError },
    /// systemd did not start it, or did not answer.
    #[error("systemd does not start {unit}; `systemctl start {unit}` starts it")]
    NotStarted { unit: Arc<str>, source: UnitError },
    /// The service is still running after [`ENDS_WITHIN`].
    #[error("{unit} has not exited within {} s", ENDS_WITHIN.as_secs())]
    Late { unit: Arc<str> },
    /// The mark cannot be written. Without it, an agent that is killed meanwhile would leave the kubelet stopped.
    #[error("cannot write {}, by which the next agent would know to start it again", .path.display())]
    Mark {
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

// === impl KubeletService ===

impl KubeletService {
    /// `volatile` is a directory that is empty after a boot.
    pub(super) fn new(volatile: &Path) -> Self {
        let stopped = service::stopped(volatile);
        Self {
            mark: service::stopped_file(volatile),
            ran: AtomicBool::new(stopped.is_some()),
            name: Mutex::new(stopped.map(Into::into)),
            reading: OneThread::default(),
        }
    }

    async fn unit(&self) -> KubeletUnit {
        let known = self.name.lock().clone();
        let name = match known {
            Some(name) => name,
            None => self.find().await,
        };
        let systemd = UnitsClient::start(Bus::System, &name, SYSTEMD_ANSWER_TIMEOUT);
        KubeletUnit { name, systemd }
    }

    /// The name of the service as the machine says it; the usual one if it has no kubelet.
    async fn find(&self) -> Arc<str> {
        let look = self.reading.run(|()| service::own(Path::new("/")));
        match timeout(PROCESSES_TIMEOUT, look).await {
            Ok(Ok(Some(found))) => {
                let found = Arc::<str>::from(found);
                *self.name.lock() = Some(Arc::clone(&found));
                found
            }
            _ => service::USUAL.into(),
        }
    }

    /// Whether neither the service nor another kubelet runs, such as one that is part of k3s. Cancel-safe.
    pub(super) async fn is_absent(&self) -> bool {
        match self.unit().await.look().await {
            Ok(state) if state.is_none_or(|state| state.main_pid.is_none()) => {
                self.has_no_process().await
            }
            _ => false,
        }
    }

    async fn has_no_process(&self) -> bool {
        let look = self.reading.run(|()| may_run_kubelet(Path::new("/")));
        matches!(timeout(PROCESSES_TIMEOUT, look).await, Ok(Ok(Ok(false))))
    }

    /// Resolves when the service no longer runs: it was seen running, or no kubelet runs. Cancel-safe.
    pub(super) async fn ended(&self) {
        let unit = self.unit().await;
        let mut changes = unit.systemd.changes();
        loop {
            match unit.look().await {
                Ok(Some(state)) if state.main_pid.is_some() => {
                    self.ran.store(true, Ordering::Relaxed);
                }
                Ok(_) if self.ran.load(Ordering::Relaxed) || self.has_no_process().await => return,
                _ => {}
            }
            // A lagged receiver returns too, and the state is then checked; the sender lives as long as the client.
            let _ = changes.recv().await;
        }
    }

    /// Whether an earlier agent stopped the service, and it does not run. Cancel-safe.
    pub(super) async fn is_stopped(&self) -> bool {
        if !self.mark.exists() {
            return false;
        }
        let state = self.unit().await.look().await;
        matches!(state, Ok(state) if state.is_none_or(|state| state.main_pid.is_none()))
    }

    /// Stops the service and resolves when it has exited. Its pods keep running.
    ///
    /// # Errors
    /// See [`KubeletError`]. The service may still stop afterwards.
    pub(super) async fn stop(&self) -> Result<(), KubeletError> {
        let KubeletUnit { name: unit, systemd } = self.unit().await;
        let not_stopped = |source| KubeletError::NotStopped { unit: Arc::clone(&unit), source };
        let state = systemd.look(&unit).await.map_err(not_stopped)?;
        // A service that has just exited may be restarted by systemd.
        if !may_run(state.as_ref()) && !self.ran.load(Ordering::Relaxed) {
            // Stopped by someone else, who may start it again.
            let is_absent = self.has_no_process().await;
            return if is_absent { Ok(()) } else { Err(KubeletError::NoService { unit }) };
        }
        replace_private(&self.mark, Durability::Process, unit.as_bytes())
            .map_err(|source| KubeletError::Mark { path: self.mark.clone(), source })?;
        match timeout(ENDS_WITHIN, end(&systemd, &unit)).await {
            Ok(ended) => ended.map_err(not_stopped),
            Err(_) => Err(KubeletError::Late { unit: Arc::clone(&unit) }),
        }
    }

    /// Starts the service if this agent or an earlier one stopped it.
    pub(super) async fn start(&self) -> Result<(), KubeletError> {
        if !self.mark.exists() {
            return Ok(());
        }
        let KubeletUnit { name: unit, systemd } = self.unit().await;
        let started = systemd.start_unit(&unit).await;
        started.map_err(|source| KubeletError::NotStarted { unit, source })?;
        tracing::info!("started the kubelet again");
        // If the mark stays, the next agent starts the running service, which has no effect.
        let _ = std::fs::remove_file(&self.mark);
        Ok(())
    }
}

impl KubeletUnit {
    async fn look(&self) -> Result<Option<UnitView>, UnitError> {
        self.systemd.look(&self.name).await
    }
}

/// Whether a kubelet of this node may run: one that root started without a service counts. Blocks.
///
/// # Errors
/// That is not known: `/proc` cannot be read, or shows only some processes.
fn may_run_kubelet(root: &Path) -> io::Result<bool> {
    shows_machine(&root.join("proc"))?;
    let is_of_root = |why| matches!(why, Stranger::InSession | Stranger::InNoService);
    let NamedKubelets { kubelets, strangers } = kubelets(root)?;
    Ok(!kubelets.is_empty() || strangers.into_iter().any(|(_, why)| is_of_root(why)))
}

/// Whether the service runs, or systemd is about to restart it after an exit.
fn may_run(state: Option<&UnitView>) -> bool {
    let restarts = |state: &UnitView| state.phase == UnitPhase::Starting && state.end.is_some();
    state.is_some_and(|state| state.main_pid.is_some() || restarts(state))
}

/// Has the service stopped, and resolves when it has no processes left, or at least no kubelet.
///
/// When the machine shuts down without logind, systemd stops this service only after the agent, so a stop that the agent
/// requests waits for the agent. The kubelet itself is then asked to exit; systemd does not restart a service that it is
/// about to stop.
async fn end<U: ServiceUnits>(systemd: &U, unit: &str) -> Result<(), UnitError> {
    // Subscribes before the stop, so that no change is missed.
    let mut changes = systemd.changes();
    systemd.stop(unit).await?;
    let begun = until(systemd, unit, &mut changes, |state| state.phase >= UnitPhase::Stopping);
    if let Ok(begun) = timeout(STOP_BEGINS_WITHIN, begun).await {
        begun?;
        return until(systemd, unit, &mut changes, |state| state.phase == UnitPhase::Over).await;
    }
    systemd.signal(unit, KillWhom::Main, SIGTERM).await?;
    until(systemd, unit, &mut changes, |state| state.main_pid.is_none()).await
}

/// Resolves when the service is in such a state, or is not loaded.
async fn until<U: ServiceUnits>(
    systemd: &U,
    unit: &str,
    changes: &mut broadcast::Receiver<UnitChange>,
    is_so: impl Fn(&UnitView) -> bool,
) -> Result<(), UnitError> {
    while systemd.look(unit).await?.is_some_and(|state| !is_so(&state)) {
        // A lagged receiver returns too, and the state is then checked; the sender lives as long as the client.
        let _ = changes.recv().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
