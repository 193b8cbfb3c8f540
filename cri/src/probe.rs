//! Probes, asked through the runtime or over the network.
//!
//! A runtime that does not answer says nothing about a container: such a result is not counted.

use std::sync::Arc;
use std::time::Duration;

use winddown_engine::plan;
use winddown_engine::probing::{Found, Probed, Probes};
use winddown_shared::{Pod, error_chain};

use super::Context;
use super::action::{self, Action, ActionError};
use super::pod::PodEntry;

/// One run of a container.
struct ProbedRun {
    context: Arc<Context>,
    entry: Arc<PodEntry>,
    name: Arc<str>,
    id: Arc<str>,
}

/// Starts probing the newest run of a container if it has probes and is not probed yet. `well` is
/// whether its postStart hook went well; without it the container is to be restarted.
pub(super) fn begin(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
    well: bool,
) {
    let Some(found) = plan::find(pod, name) else { return };
    let container = found.container;
    let ips = entry.lock().ips.clone();
    let node = action::address(context, Some(pod), &ips);
    let probes = Probes::of(container, |probe| Action::of_probe(probe, container, &node));
    let id = {
        let mut state = entry.lock();
        let Some(container) = state.container(name) else { return };
        let kind = container.kind;
        let Some(run) =
            container.run.as_mut().filter(|run| run.is_running() && !run.probe_state.probed)
        else {
            return;
        };
        run.probe_state.begin(&probes, kind, well);
        Arc::clone(&run.id)
    };
    if well && !probes.is_empty() {
        let (entry, name) = (Arc::clone(entry), Arc::clone(name));
        let run = ProbedRun { context: Arc::clone(context), entry, name, id };
        probes.begin(run, context.alive.clone());
    }
}

// === impl ProbedRun ===

impl Probed for ProbedRun {
    type Action = Action;

    async fn ask(&self, action: &Action, timeout: Duration) -> Option<bool> {
        match action.run(&self.context, &self.id, timeout).await {
            Ok(()) => Some(true),
            Err(ActionError::Runtime(error)) => {
                tracing::debug!(container = %self.name, error = error_chain(&error), "a probe could not be asked");
                None
            }
            Err(error) => {
                tracing::debug!(container = %self.name, error = error_chain(&error), "a probe failed");
                Some(false)
            }
        }
    }

    fn note(&self, found: Found) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, &self.id) else { return };
        let is_changed = run.probe_state.note(found);
        drop(state);
        if is_changed {
            self.entry.announce();
        }
    }

    async fn is_over(&self) {
        self.entry
            .wait_for(|state| {
                let stopping = state.stopping;
                let run = state.run(&self.name, &self.id);
                (stopping || run.is_none_or(|run| run.end.is_some())).then_some(())
            })
            .await;
    }
}
