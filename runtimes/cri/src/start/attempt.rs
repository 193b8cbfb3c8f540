//! Makes the runtime start an existing container, and determines the outcome.
//!
//! If an agent dies during a start, the start is still in progress at the runtime: containerd cancels it
//! some time after its caller is gone, and kills what it had started. Until then another start is refused,
//! and afterwards the container has exited without ever having run. Neither is the container's fault.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::{Backoff, error_chain};

use super::super::client::CallError;
use super::super::observe::{self, ObservedContainer};
use super::super::pod::PodEntry;
use super::super::{CriContext, api, exits, health};
use super::patient;
use crate::pod;

/// How long to wait for a start that another caller began.
const OTHER_START_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a start.
pub(super) enum Begun {
    /// The container was started; it may have exited since.
    Started,
    /// The container never ran, and can never run: another one has to be created.
    Undone,
    /// The runtime could not start the container.
    Refused(CallError),
    /// The runtime did not answer.
    Unanswered(CallError),
    /// The pod is being stopped.
    GivenUp,
}

/// Starts the container, waiting for a start that is already in progress.
pub(super) async fn begin(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    name: &str,
    id: &str,
) -> Begun {
    let deadline = Instant::now() + OTHER_START_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200));
    loop {
        let request = api::StartContainerRequest { container_id: id.to_owned() };
        let call = context.client.start_container(request);
        let error = match patient(context, entry, call).await {
            Some(Ok(_)) => return Begun::Started,
            None => return Begun::GivenUp,
            Some(Err(error)) => error,
        };
        // The container's state counts, not the answer.
        let seen = match &error {
            CallError::Unreachable { .. } | CallError::NoCri { .. } => None,
            _ => observe::ask(context, entry, id, true).await.ok(),
        };
        let is_refused = matches!(error, CallError::Refused { .. });
        match seen.as_ref().map(ObservedContainer::stage) {
            Some(observe::ContainerStage::Started) => {
                let (pod, error) = (pod::title(entry), error_chain(&error));
                tracing::info!(%pod, container = %name, error, "a container runs although its start failed");
                return Begun::Started;
            }
            Some(observe::ContainerStage::NeverRun) if error.is_wrong_state() => {
                if let Some(seen) = &seen {
                    exits::enter(context, entry, seen);
                }
                return Begun::Undone;
            }
            Some(observe::ContainerStage::Unknown) if error.is_wrong_state() => {
                return end_unknown(context, entry, id, error).await;
            }
            Some(observe::ContainerStage::Created)
                if error.is_wrong_state() && Instant::now() < deadline =>
            {
                tokio::select! {
                    () = sleep(backoff.next_delay()) => {}
                    () = pod::stopping(entry) => return Begun::GivenUp,
                }
            }
            _ if is_refused => {
                if let Some(run) = entry.lock().run(name, id) {
                    // A start that failed is the container's fault, even if it was already recorded as never run.
                    (run.own.refused, run.undone) = (true, false);
                }
                return Begun::Refused(error);
            }
            _ => {
                health::note_unreachable(context, &error);
                return Begun::Unanswered(error);
            }
        }
    }
}

/// Stops a container whose state the runtime lost because it was killed while starting it. The runtime will never
/// start it, but some of its processes may exist.
async fn end_unknown(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    id: &str,
    refused: CallError,
) -> Begun {
    if let Err(error) = context.client.stop_container(id, Duration::ZERO).await {
        health::note_unreachable(context, &error);
        return Begun::Unanswered(error);
    }
    match observe::ask(context, entry, id, true).await {
        Ok(seen) if exits::enter(context, entry, &seen) => Begun::Undone,
        Ok(_) => Begun::Refused(refused),
        Err(error) => Begun::Unanswered(error),
    }
}
