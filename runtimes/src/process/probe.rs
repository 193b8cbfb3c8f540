//! Startup, readiness and liveness probes.
//!
//! # Behaviour
//! * While the startup probe has not passed, the others rest and the container has not started.
//! * A startup or liveness probe that fails `failureThreshold` times in a row has the container ended
//!   and, if its policy says so, started again.
//! * Probes rest as soon as the pod is asked to end.
//! * After a restart of the agent a container counts as ready until its readiness probe says
//!   otherwise: an agent's restart is no reason to take a pod out of service.
//!
//! One task per container that has probes; it sleeps between them.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use tokio::time::{sleep, timeout};
use winddown_shared::{Pod, RuntimeError};

use super::hook::{self, Handler};
use super::order::Command;
use super::pod::{PodEntry, Run};
use super::{Context, launch};
use crate::environment::NodeFacts;
use crate::probing::{Schedule, Verdict};

/// One probe.
#[derive(Clone, Debug)]
struct Probe {
    handler: Handler,
    schedule: Schedule,
    verdict: Verdict,
}

/// What the probing task works on.
struct Probed {
    context: Arc<Context>,
    entry: Arc<PodEntry>,
    name: Arc<str>,
    attempt: u32,
    command: Command,
}

/// Starts probing the newest run of a container if it has probes and is not probed yet. `well` is
/// whether its postStart hook went well; without it the container is to be restarted.
///
/// # Errors
/// As [`launch::command`].
pub(crate) fn begin(
    context: &Arc<Context>,
    entry: &Arc<PodEntry>,
    pod: &Pod,
    name: &Arc<str>,
    well: bool,
) -> Result<(), RuntimeError> {
    let Some((container, field)) = launch::find(pod, name) else { return Ok(()) };
    let node = &context.config.node;
    let startup = Probe::of(container.startup_probe.as_ref(), container, node);
    let readiness = Probe::of(container.readiness_probe.as_ref(), container, node);
    let liveness = Probe::of(container.liveness_probe.as_ref(), container, node);
    let attempt = {
        let mut state = entry.lock();
        let run = state.container(name).and_then(|c| c.run.as_mut());
        let Some(run) = run.filter(|run| run.end.is_none() && !run.probed) else { return Ok(()) };
        run.probed = true;
        run.failing = !well;
        // An adopted run is ready already.
        run.ready |= well && readiness.is_none();
        run.started = well && startup.is_none();
        run.attempt
    };
    if !well || (startup.is_none() && readiness.is_none() && liveness.is_none()) {
        return Ok(());
    }
    let command = launch::command(&context.config, pod, container, &field)?;
    let (entry, name) = (Arc::clone(entry), Arc::clone(name));
    let probed = Probed { context: Arc::clone(context), entry, name, attempt, command };
    let mut alive = context.alive.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = probed.follow(startup, readiness, liveness) => {}
            () = probed.is_over() => {}
            _ = alive.changed() => {}
        }
    });
    Ok(())
}

// === impl Probed ===

impl Probed {
    async fn follow(
        &self,
        startup: Option<Probe>,
        readiness: Option<Probe>,
        liveness: Option<Probe>,
    ) {
        if let Some(mut probe) = startup {
            if !self.until(&mut probe, true).await {
                return;
            }
            self.note(|run| run.started = true);
        }
        tokio::join!(self.watch_readiness(readiness), self.watch_liveness(liveness));
    }

    async fn watch_readiness(&self, probe: Option<Probe>) {
        let Some(mut probe) = probe else { return };
        sleep(probe.schedule.initial_delay).await;
        loop {
            let verdict = self.once(&mut probe).await;
            if let Some(well) = verdict {
                self.note(|run| run.ready = well);
            }
            sleep(probe.schedule.period).await;
        }
    }

    async fn watch_liveness(&self, probe: Option<Probe>) {
        let Some(mut probe) = probe else { return };
        self.until(&mut probe, false).await;
    }

    /// Asks until the container fails (then it is to be restarted) or, if `or_well`, is well. True
    /// in the latter case.
    async fn until(&self, probe: &mut Probe, or_well: bool) -> bool {
        sleep(probe.schedule.initial_delay).await;
        loop {
            match self.once(probe).await {
                Some(false) => {
                    self.note(|run| run.failing = true);
                    return false;
                }
                Some(true) if or_well => return true,
                _ => sleep(probe.schedule.period).await,
            }
        }
    }

    async fn once(&self, probe: &mut Probe) -> Option<bool> {
        let asked = hook::run(&self.context, &probe.handler, self.command.clone());
        let well = matches!(timeout(probe.schedule.timeout, asked).await, Ok(Ok(())));
        probe.verdict.count(well)
    }

    /// Changes the run, and tells the workers if that changed anything.
    fn note(&self, change: impl FnOnce(&mut Run)) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, self.attempt) else { return };
        let before = (run.started, run.ready, run.failing);
        change(run);
        let is_changed = before != (run.started, run.ready, run.failing);
        drop(state);
        if is_changed {
            self.entry.announce();
        }
    }

    /// Resolves when the run has ended or its pod is asked to.
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

// === impl Probe ===

impl Probe {
    fn of(
        probe: Option<&api::Probe>,
        container: &api::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        let probe = probe?;
        let handler = api::LifecycleHandler {
            exec: probe.exec.clone(),
            http_get: probe.http_get.clone(),
            tcp_socket: probe.tcp_socket.clone(),
            sleep: None,
        };
        Some(Self {
            handler: Handler::of(&handler, container, node)?,
            schedule: Schedule::of(probe),
            verdict: Verdict::of(probe),
        })
    }
}
