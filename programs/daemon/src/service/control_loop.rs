//! The loop that feeds the watchdog. It also handles the lock's state, reloads and signals, so a watchdog that
//! is fed means an agent that works.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::watch;
use winddown_api_client::{ApiHealth, ConnectionState};
use winddown_host::machine::wall_clock;
use winddown_notices::NoticeAggregator;
use winddown_shared::{Inhibitor, error_chain};
use winddown_systemd::{LogindInhibitor, Notifier};

use super::former_runtime::at_restart;
use super::reload::{self, FileReading, Loaded};
use super::signals::Ends;
use super::{ServiceNode, ServiceOptions, notices, status_line};
use winddown_config::{Config, DEFAULT_FILE, LAST_IS_USED};
use winddown_control::HealthApi;
use winddown_node::{Configuration, Configured, ShutdownHandle, policy_of, service};

pub(super) struct ControlLoop {
    pub(super) options: ServiceOptions,
    pub(super) configured: Configured,
    pub(super) node: ServiceNode,
    pub(super) shutdown: ShutdownHandle,
    pub(super) notices: NoticeAggregator,
    pub(super) inhibitor: Arc<LogindInhibitor>,
    /// The health of the connection to the API server, if there is one.
    pub(super) api: Option<watch::Receiver<ApiHealth>>,
    pub(super) notifier: Notifier,
    pub(super) reloads: Signal,
    pub(super) ends: Ends,
}

impl ControlLoop {
    /// Runs until SIGTERM or SIGINT, and then ends the pods if the machine is going down.
    pub(super) async fn run(mut self) {
        let mut state = self.inhibitor.state();
        let mut watchdog = service::watchdog(&self.notifier);
        let mut ready = false;
        let mut reading = None;
        let patience = tokio::time::sleep(service::UNAVAILABLE_AFTER);
        tokio::pin!(patience);
        loop {
            self.notify_status();
            // The lock is held, or is known to be unavailable.
            if !ready && (state.borrow().lock.is_known() || patience.is_elapsed()) {
                ready = true;
                self.notifier.ready();
            }
            tokio::select! {
                () = &mut patience, if !ready => {}
                changed = state.changed() => if changed.is_err() { break },
                () = changed(&mut self.api) => {}
                _ = watchdog.tick() => {
                    // Answers only if no step holds the workers' lock.
                    if self.node.health().ok() {
                        self.notifier.watchdog_ping();
                    }
                }
                _ = self.reloads.recv(), if reading.is_none() => {
                    // systemd expects `READY=1` after a reload, which must not be sent before the agent is ready.
                    if ready {
                        self.notifier.reloading();
                    }
                    let has_file = self.configured.configuration().file.is_some();
                    reading = Some(FileReading::start(&self.options, has_file));
                }
                loaded = reload::end_of(&mut reading) => {
                    self.take_over(loaded);
                    if ready {
                        self.notifier.ready();
                    }
                }
                () = self.ends.next() => break,
            }
        }
        service::end(&self.notifier, &self.node, &self.shutdown).await;
    }

    fn notify_status(&self) {
        let state = self.inhibitor.state().borrow().clone();
        let lock = status_line(&state.lock, state.delay, self.delay_wanted());
        let api = self.api.as_ref().map(|api| api.borrow().state.clone());
        match api {
            None | Some(ConnectionState::Connected | ConnectionState::Unknown) => {
                self.notifier.status(&lock);
            }
            Some(state) => self.notifier.status(&format!("{lock}; API server: {state}")),
        }
    }

    fn delay_wanted(&self) -> Duration {
        policy_of(&self.configured.configuration().config.shutdown).delay_wanted()
    }

    /// Applies the fields of a reloaded configuration that can change at run time, and logs those that cannot.
    fn take_over(&self, loaded: Loaded) {
        let old = self.configured.configuration();
        match loaded {
            Err(error) => self.keep(old, &error),
            Ok(Err(error)) => self.keep(old, &error),
            Ok(Ok(mut new)) => {
                for warning in &new.warnings {
                    tracing::warn!("reload: {warning}");
                }
                let changes = Config::changes(&old.config, &new.config);
                for change in &changes.applied {
                    let field = &change.field;
                    tracing::info!(field, "reload: {field} is now in effect");
                }
                for change in &changes.needs_restart {
                    let field = &change.field;
                    let warning = at_restart(field, new.config.node.runtime);
                    tracing::warn!(field, "reload: {warning}");
                    new.warnings.push(warning);
                    new.at_restart.push(field.to_string());
                }
                if changes.is_empty() {
                    tracing::info!("reload: nothing has changed");
                }
                new.config = Arc::new(old.config.reloaded(&new.config));
                self.configured.replace(new);
                let wanted = self.delay_wanted();
                self.inhibitor.set_wanted_delay(wanted);
                self.notices.set_lead(notices::lead(wanted));
            }
        }
    }

    /// Keeps the configuration in force, with a warning about the failed reload for the status.
    fn keep(&self, mut configuration: Configuration, error: &(dyn std::error::Error + 'static)) {
        let error = error_chain(error);
        tracing::error!("reload: {error}; the configuration stays as it was");
        // What was said of the file before is not true of the file that was just read.
        let of_file = |warning: &String| {
            warning.starts_with(KEPT)
                || warning.starts_with(DEFAULT_FILE) && warning.contains(LAST_IS_USED)
        };
        configuration.warnings.retain(|warning| !of_file(warning));
        configuration.warnings.push(format!("{KEPT}{error}"));
        configuration.loaded_at = wall_clock().now();
        self.configured.replace(configuration);
    }
}

/// Resolves when the API server's state has changed; pending for ever without one. Cancel-safe.
async fn changed(api: &mut Option<watch::Receiver<ApiHealth>>) {
    let Some(health) = api else { return std::future::pending().await };
    // The sender is dropped with the connection, whose last state stays.
    if health.changed().await.is_err() {
        *api = None;
    }
}

/// The prefix of the warning that the status shows after a failed reload.
const KEPT: &str =
    "the configuration was read again and cannot be used, so the one before it is in effect: ";
