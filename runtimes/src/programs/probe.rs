//! Probes, asked as programs beside the container or over the network.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, RuntimeError};

use super::Programs;
use super::hook::{self, Handler};
use crate::environment::NodeFacts;
use crate::probing::{Found, Probed, Probes};
use crate::process::launch;
use crate::process::order::Command;
use crate::process::pod::PodEntry;

/// One run of a container.
struct ProbedRun<P> {
    programs: Arc<P>,
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
pub(super) fn begin<P: Programs>(
    programs: &Arc<P>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
    well: bool,
) -> Result<(), RuntimeError> {
    let Some((container, field)) = launch::find(pod, name) else { return Ok(()) };
    let config = programs.config();
    let probes = Probes::of(container, |probe| handler(probe, container, &config.node));
    let attempt = {
        let mut state = entry.lock();
        let run = state.container(name).and_then(|c| c.run.as_mut());
        let Some(run) = run.filter(|run| run.end.is_none() && !run.probed) else { return Ok(()) };
        run.probed = true;
        run.failing = !well;
        // An adopted run is ready already.
        run.ready |= well && probes.readiness.is_none();
        run.started = well && probes.startup.is_none();
        run.attempt
    };
    if well && !probes.is_empty() {
        let command = launch::command(config, pod, container, &field)?;
        let (programs, entry, name) = (Arc::clone(programs), Arc::clone(entry), Arc::clone(name));
        let alive = programs.alive();
        let run = ProbedRun { programs, entry, pod: pod.clone(), name, attempt, command };
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

impl<P: Programs> Probed for ProbedRun<P> {
    type Action = Handler;

    async fn ask(&self, handler: &Handler, timeout: Duration) -> Option<bool> {
        let beside = (&self.pod, &*self.name);
        let asked = hook::run(&self.programs, beside, handler, &self.command, Some(timeout));
        match tokio::time::timeout(timeout, asked).await {
            Ok(Err(error)) if !P::is_answer(&error) => None,
            answer => Some(matches!(answer, Ok(Ok(())))),
        }
    }

    fn has_started(&self) -> bool {
        self.entry.lock().run(&self.name, self.attempt).is_some_and(|run| run.started)
    }

    fn note(&self, found: Found) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, self.attempt) else { return };
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
                let run = state.run(&self.name, self.attempt);
                (stopping || run.is_none_or(|run| run.end.is_some())).then_some(())
            })
            .await;
    }
}
