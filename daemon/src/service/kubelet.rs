//! The kubelet's own service.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::time::timeout;
use winddown_files::{Survives, replace};
use winddown_shared::service_units::{ServiceUnits as _, UnitChange, UnitError, UnitPhase};
use winddown_systemd::Bus;
use winddown_systemd::units::UnitsClient;

/// What every distribution of Kubernetes with a kubelet of its own calls it.
const UNIT: &str = "kubelet.service";
/// In the volatile directory while the service is stopped: the next agent starts it again.
const MARK: &str = "kubelet-stopped";
/// How long systemd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kubelet may take to end. It waits for nothing when it is asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The service that runs the kubelet.
#[derive(Debug)]
pub(super) struct KubeletService {
    mark: PathBuf,
    /// It was seen to run.
    ran: AtomicBool,
}

/// The kubelet's service could not be stopped or started.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletError {
    /// There is none that runs.
    #[error("no {UNIT} runs on this machine")]
    NoService,
    /// systemd did not do it.
    #[error("systemd does not do it")]
    Systemd(#[source] UnitError),
    /// It goes on.
    #[error("{UNIT} has not ended within {} s", ENDS_WITHIN.as_secs())]
    Late,
    /// An agent that is killed meanwhile would leave it stopped.
    #[error("cannot write {}, by which the next agent would know to start it again", .path.display())]
    Mark {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

// === impl KubeletService ===

impl KubeletService {
    /// `volatile` is a directory that is empty after a boot.
    pub(super) fn new(volatile: &Path) -> Self {
        Self { mark: volatile.join(MARK), ran: AtomicBool::new(false) }
    }

    /// Resolves when it runs no more, once it was seen to run. Cancel-safe.
    pub(super) async fn ended(&self) {
        let systemd = UnitsClient::start(Bus::System, UNIT, PATIENCE);
        let mut changes = systemd.changes();
        loop {
            match systemd.look(UNIT).await {
                Ok(Some(state)) if state.main_pid.is_some() => {
                    self.ran.store(true, Ordering::Relaxed);
                }
                Ok(_) if self.ran.load(Ordering::Relaxed) => return,
                _ => {}
            }
            // One that was missed is looked for as well; the sender lives as long as the client.
            let _ = changes.recv().await;
        }
    }

    /// Stops it, and resolves when it has ended. Its pods go on running.
    ///
    /// # Errors
    /// See [`KubeletError`]. What was begun may still happen.
    pub(super) async fn stop(&self) -> Result<(), KubeletError> {
        // Not kept: it is needed once, at the end of the machine.
        let systemd = UnitsClient::start(Bus::System, UNIT, PATIENCE);
        let state = systemd.look(UNIT).await.map_err(KubeletError::Systemd)?;
        let runs = state.is_some_and(|state| state.main_pid.is_some());
        // One that has just ended may be started again by systemd.
        if !runs && !self.ran.load(Ordering::Relaxed) {
            return if self.mark.exists() { Ok(()) } else { Err(KubeletError::NoService) };
        }
        replace(&self.mark, 0o600, Survives::Process, b"")
            .map_err(|source| KubeletError::Mark { path: self.mark.clone(), source })?;
        // What changes from here on is not missed.
        let changes = systemd.changes();
        systemd.stop(UNIT).await.map_err(KubeletError::Systemd)?;
        let ended = timeout(ENDS_WITHIN, is_over(&systemd, changes)).await;
        ended.map_err(|_| KubeletError::Late)?.map_err(KubeletError::Systemd)
    }

    /// Starts it if it was stopped here.
    ///
    /// # Errors
    /// systemd did not do it.
    pub(super) async fn start(&self) -> Result<(), KubeletError> {
        if !self.mark.exists() {
            return Ok(());
        }
        let systemd = UnitsClient::start(Bus::System, UNIT, PATIENCE);
        systemd.start_unit(UNIT).await.map_err(KubeletError::Systemd)?;
        tracing::info!("the kubelet is started again");
        // What stays is started again by the next agent, which changes nothing.
        let _ = std::fs::remove_file(&self.mark);
        Ok(())
    }
}

/// Resolves when nothing of the service runs.
async fn is_over(
    systemd: &UnitsClient,
    mut changes: broadcast::Receiver<UnitChange>,
) -> Result<(), UnitError> {
    while systemd.look(UNIT).await?.is_some_and(|state| state.phase != UnitPhase::Over) {
        // One that was missed is looked for as well; the sender lives as long as the client.
        let _ = changes.recv().await;
    }
    Ok(())
}
