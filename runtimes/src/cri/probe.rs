//! Probes, asked through the runtime or over the network.
//!
//! A runtime that does not answer says nothing about a container: such a result is not counted.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{Pod, error_chain};

use super::action::{self, Action, ActionError};
use super::pod::PodEntry;
use super::{Context, spec};
use crate::probing::{Found, Probed, Probes};

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
    let Some(found) = spec::find(pod, name) else { return };
    let container = found.container;
    let ips = entry.lock().ips.clone();
    let node = action::address(context, Some(pod), &ips);
    let probes = Probes::of(container, |probe| Action::of_probe(probe, container, &node));
    let id = {
        let mut state = entry.lock();
        let run = state.container(name).and_then(|c| c.run.as_mut());
        let Some(run) = run.filter(|run| run.is_running() && !run.probed) else { return };
        run.probed = true;
        run.failing = !well;
        // An adopted run is ready already.
        run.ready |= well && probes.readiness.is_none();
        run.started = well && (probes.startup.is_none() || run.started);
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

    fn has_started(&self) -> bool {
        self.entry.lock().run(&self.name, &self.id).is_some_and(|run| run.started)
    }

    fn note(&self, found: Found) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, &self.id) else { return };
        let before = (run.started, run.ready, run.failing);
        match found {
            Found::Started { ready } => {
                run.started = true;
                run.ready |= ready;
            }
            Found::Ready(well) => run.ready = well,
            Found::Failing => run.failing = true,
        }
        let is_changed = before != (run.started, run.ready, run.failing);
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
