//! Has the runtime start a container that is there, and finds out what came of it.
//!
//! A start that an agent had begun when it died is still under way at the runtime: containerd gives it up
//! some time after its caller is gone, and ends what it had begun. Meanwhile another start is refused,
//! and afterwards the container has ended without ever having run. Neither is the container's fault.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::error_chain;

use super::super::client::CallError;
use super::super::observe::{self, ObservedContainer};
use super::super::pod::PodEntry;
use super::super::{Context, api, exits, health};
use super::patient;
use crate::pod;

/// How long to wait for a start that another caller began.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first wait for it; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(200);

/// What came of a start.
pub(super) enum Begun {
    /// The container runs, or did: it was started.
    Started,
    /// It was never run, and can never be: another one has to be made.
    Undone,
    /// The runtime could not start it.
    Refused(CallError),
    /// The runtime did not answer.
    Unanswered(CallError),
    /// The pod is being stopped.
    GivenUp,
}

/// Starts the container, waiting for a start that is under way.
pub(super) async fn begin(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    name: &str,
    id: &str,
) -> Begun {
    let deadline = Instant::now() + PATIENCE;
    let mut wait = SHORTEST;
    loop {
        let request = api::StartContainerRequest { container_id: id.to_owned() };
        let call = context.client.start_container(request);
        let error = match patient(context, entry, call).await {
            Some(Ok(_)) => return Begun::Started,
            None => return Begun::GivenUp,
            Some(Err(error)) => error,
        };
        // What is true counts, not what was answered.
        let seen = match &error {
            CallError::Unreachable { .. } | CallError::NoCri { .. } => None,
            _ => observe::ask(context, entry, id, true).await.ok(),
        };
        let is_refused = matches!(error, CallError::Refused { .. });
        match seen.as_ref().map(ObservedContainer::stage) {
            Some(observe::Stage::Started) => {
                tracing::info!(
                    pod = %pod::title(entry), container = %name, error = error_chain(&error),
                    "a container runs although its start failed"
                );
                return Begun::Started;
            }
            Some(observe::Stage::NeverRun) if error.is_wrong_state() => {
                if let Some(seen) = &seen {
                    exits::enter(context, entry, seen);
                }
                return Begun::Undone;
            }
            Some(observe::Stage::Unknown) if error.is_wrong_state() => {
                return end_unknown(context, entry, id, error).await;
            }
            Some(observe::Stage::Created)
                if error.is_wrong_state() && Instant::now() < deadline =>
            {
                tokio::select! {
                    () = sleep(wait) => wait = (wait * 2).min(LONGEST),
                    () = pod::stopping(entry) => return Begun::GivenUp,
                }
            }
            _ if is_refused => {
                if let Some(run) = entry.lock().run(name, id) {
                    // It is the container's fault, also if it is entered already as one that never ran.
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

/// Ends a container that the runtime lost sight of when it was killed while starting it. It will never start it,
/// and what had begun may be there.
async fn end_unknown(
    context: &Arc<Context>,
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
