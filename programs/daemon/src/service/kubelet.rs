//! The systemd service of the kubelet.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::timeout;
use winddown_host::service_units::{ServiceUnits as _, UnitChange, UnitError, UnitPhase};
use winddown_host::{Durability, replace_private};
use winddown_systemd::Bus;
use winddown_systemd::units::UnitsClient;

/// The unit's name in every distribution of Kubernetes that has a separate kubelet.
const UNIT: &str = "kubelet.service";
/// A file in the volatile directory while this agent has the service stopped, so that the next agent starts it again.
const MARK: &str = "kubelet-stopped";
/// How long systemd may take to answer.
const SYSTEMD_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the kubelet may take to exit. It waits for nothing on SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The service that runs the kubelet.
#[derive(Debug)]
pub(super) struct KubeletService {
    mark: PathBuf,
    /// Whether the service was seen running, by this agent or the one that stopped it.
    ran: AtomicBool,
}

/// Why the kubelet's service could not be stopped or started.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletError {
    /// The service is not running.
    #[error("no {UNIT} runs on this machine")]
    NoService,
    /// systemd refused or did not answer.
    #[error("systemd refused")]
    Systemd(#[source] UnitError),
    /// The service is still running after [`ENDS_WITHIN`].
    #[error("{UNIT} has not exited within {} s", ENDS_WITHIN.as_secs())]
    Late,
    /// The mark cannot be written. Without it, an agent that is killed meanwhile would leave the kubelet stopped.
    #[error("cannot write {}, by which the next agent would know to start it again", .path.display())]
    Mark {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

// === impl KubeletService ===

impl KubeletService {
    /// `volatile` is a directory that is empty after a boot.
    pub(super) fn new(volatile: &Path) -> Self {
        let mark = volatile.join(MARK);
        let ran = AtomicBool::new(mark.exists());
        Self { mark, ran }
    }

    /// Resolves when the service no longer runs: it was seen running, or has run since the boot. Cancel-safe.
    pub(super) async fn ended(&self) {
        let systemd = UnitsClient::start(Bus::System, UNIT, SYSTEMD_ANSWER_TIMEOUT);
        let mut changes = systemd.changes();
        loop {
            match systemd.look(UNIT).await {
                Ok(Some(state)) if state.main_pid.is_some() => {
                    self.ran.store(true, Ordering::Relaxed);
                }
                Ok(Some(state)) if state.phase == UnitPhase::Over => return,
                Ok(_) if self.ran.load(Ordering::Relaxed) => return,
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
        let systemd = UnitsClient::start(Bus::System, UNIT, SYSTEMD_ANSWER_TIMEOUT);
        matches!(systemd.look(UNIT).await, Ok(state) if state.is_none_or(|state| state.main_pid.is_none()))
    }

    /// Stops the service and resolves when it has exited. Its pods keep running.
    ///
    /// # Errors
    /// See [`KubeletError`]. The service may still stop afterwards.
    pub(super) async fn stop(&self) -> Result<(), KubeletError> {
        // The client is not kept: it is needed once, when the machine goes down.
        let systemd = UnitsClient::start(Bus::System, UNIT, SYSTEMD_ANSWER_TIMEOUT);
        let state = systemd.look(UNIT).await.map_err(KubeletError::Systemd)?;
        let runs = state.as_ref().is_some_and(|state| state.main_pid.is_some());
        // A service that has just exited may be restarted by systemd.
        if !runs && !self.ran.load(Ordering::Relaxed) {
            // Stopped by someone else, who may start it again.
            let is_over = state.is_some_and(|state| state.phase == UnitPhase::Over);
            return if is_over { Ok(()) } else { Err(KubeletError::NoService) };
        }
        replace_private(&self.mark, Durability::Process, b"")
            .map_err(|source| KubeletError::Mark { path: self.mark.clone(), source })?;
        // Subscribes before the stop, so that no change is missed.
        let changes = systemd.changes();
        systemd.stop(UNIT).await.map_err(KubeletError::Systemd)?;
        let ended = timeout(ENDS_WITHIN, is_over(&systemd, changes)).await;
        ended.map_err(|_| KubeletError::Late)?.map_err(KubeletError::Systemd)
    }

    /// Starts the service if this agent or an earlier one stopped it.
    ///
    /// # Errors
    /// systemd refused or did not answer.
    pub(super) async fn start(&self) -> Result<(), KubeletError> {
        if !self.mark.exists() {
            return Ok(());
        }
        let systemd = UnitsClient::start(Bus::System, UNIT, SYSTEMD_ANSWER_TIMEOUT);
        systemd.start_unit(UNIT).await.map_err(KubeletError::Systemd)?;
        tracing::info!("started the kubelet again");
        // If the mark stays, the next agent starts the running service, which has no effect.
        let _ = std::fs::remove_file(&self.mark);
        Ok(())
    }
}

/// Resolves when the service has no processes left.
async fn is_over(
    systemd: &UnitsClient,
    mut changes: broadcast::Receiver<UnitChange>,
) -> Result<(), UnitError> {
    while systemd.look(UNIT).await?.is_some_and(|state| state.phase != UnitPhase::Over) {
        // A lagged receiver returns too, and the state is then checked; the sender lives as long as the client.
        let _ = changes.recv().await;
    }
    Ok(())
}
