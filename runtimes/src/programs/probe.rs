//! Probes, asked as programs beside the container or over the network.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_engine::environment::NodeFacts;
use winddown_engine::plan;
use winddown_engine::probing::{Found, Probed, Probes};
use winddown_shared::{Pod, RuntimeError};
use winddown_shim::order::Command;

use super::hook::{self, Handler};
use super::pod::PodEntry;
use super::{Context, Driver, launch};

/// One run of a container.
struct ProbedRun<D> {
    context: Arc<Context<D>>,
    entry: Arc<PodEntry>,
    pod: Pod,
    name: Arc<str>,
    attempt: u32,
    command: Command,
}

/// Starts probing the newest run of a container if it has probes and is not probed yet. `well` is
/// whether its postStart hook went well; without it the container is to be restarted.
///
/// # Errors
/// As [`launch::command`].
pub(super) fn begin<D: Driver>(
    context: &Arc<Context<D>>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
    well: bool,
) -> Result<(), RuntimeError> {
    let Some(found) = plan::find(pod, name) else { return Ok(()) };
    let container = found.container;
    let config = &context.config;
    let probes = Probes::of(container, |probe| handler(probe, container, &config.node));
    let attempt = {
        let mut state = entry.lock();
        let Some(container) = state.container(name) else { return Ok(()) };
        let kind = container.kind;
        let Some(run) =
            container.run.as_mut().filter(|run| run.end.is_none() && !run.probe_state.probed)
        else {
            return Ok(());
        };
        run.probe_state.begin(&probes, kind, well);
        run.attempt
    };
    if well && !probes.is_empty() {
        let command = launch::command(config, pod, &found)?;
        let (context, entry, name) = (Arc::clone(context), Arc::clone(entry), Arc::clone(name));
        let alive = context.alive.clone();
        let run = ProbedRun { context, entry, pod: pod.clone(), name, attempt, command };
        probes.begin(run, alive);
    }
    Ok(())
}

fn handler(probe: &api::Probe, container: &api::Container, node: &NodeFacts) -> Option<Handler> {
    let handler = api::LifecycleHandler {
        exec: probe.exec.clone(),
        http_get: probe.http_get.clone(),
        tcp_socket: probe.tcp_socket.clone(),
        sleep: None,
    };
    Handler::of(&handler, container, node)
}

// === impl ProbedRun ===

impl<D: Driver> Probed for ProbedRun<D> {
    type Action = Handler;

    async fn ask(&self, handler: &Handler, timeout: Duration) -> Option<bool> {
        let beside = (&self.pod, &*self.name);
        let asked = hook::run(&self.context, beside, handler, &self.command, Some(timeout));
        match tokio::time::timeout(timeout, asked).await {
            Ok(Err(error)) if !D::is_answer(&error) => None,
            answer => Some(matches!(answer, Ok(Ok(())))),
        }
    }

    fn note(&self, found: Found) {
        let mut state = self.entry.lock();
        let Some(run) = state.attempt(&self.name, self.attempt) else { return };
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
                let run = state.attempt(&self.name, self.attempt);
                (stopping || run.is_none_or(|run| run.end.is_some())).then_some(())
            })
            .await;
    }
}
