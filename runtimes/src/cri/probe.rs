//! Startup, readiness and liveness probes.
//!
//! # Behaviour
//! * While the startup probe has not passed, the others rest and the container has not started.
//! * A startup or liveness probe that fails `failureThreshold` times in a row has the container ended
//!   and, if its policy says so, started again.
//! * Probes rest as soon as the pod is asked to end.
//! * A runtime that does not answer says nothing about a container: such a result is not counted.
//! * After a restart of the agent a container counts as ready until its readiness probe says
//!   otherwise.
//!
//! One task per container that has probes; it sleeps between them.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::sleep;
use winddown_shared::Pod;

use super::action::{self, Action, ActionError};
use super::pod::{PodEntry, Run};
use super::{Context, spec};
use crate::environment::NodeFacts;
use crate::probing::{Schedule, Verdict};

/// One probe.
#[derive(Clone, Debug)]
struct Probe {
    action: Action,
    schedule: Schedule,
    verdict: Verdict,
}

/// What the probing task works on.
struct Probed {
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
    let startup = Probe::of(container.startup_probe.as_ref(), container, &node);
    let readiness = Probe::of(container.readiness_probe.as_ref(), container, &node);
    let liveness = Probe::of(container.liveness_probe.as_ref(), container, &node);
    let id = {
        let mut state = entry.lock();
        let run = state.container(name).and_then(|c| c.run.as_mut());
        let Some(run) = run.filter(|run| run.is_running() && !run.probed) else { return };
        run.probed = true;
        run.failing = !well;
        // An adopted run is ready already.
        run.ready |= well && readiness.is_none();
        run.started = well && (startup.is_none() || run.started);
        Arc::clone(&run.id)
    };
    if !well || (startup.is_none() && readiness.is_none() && liveness.is_none()) {
        return;
    }
    let (entry, name) = (Arc::clone(entry), Arc::clone(name));
    let probed = Probed { context: Arc::clone(context), entry, name, id };
    let mut alive = context.alive.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = probed.follow(startup, readiness, liveness) => {}
            () = probed.is_over() => {}
            _ = alive.changed() => {}
        }
    });
}

// === impl Probed ===

impl Probed {
    async fn follow(
        &self,
        startup: Option<Probe>,
        readiness: Option<Probe>,
        liveness: Option<Probe>,
    ) {
        let has_started = self.entry.lock().run(&self.name, &self.id).is_some_and(|r| r.started);
        if let Some(mut probe) = startup.filter(|_| !has_started) {
            if !self.until(&mut probe, true).await {
                return;
            }
            self.note(|run| {
                run.started = true;
                run.ready |= readiness.is_none();
            });
        }
        tokio::join!(self.watch_readiness(readiness), self.watch_liveness(liveness));
    }

    async fn watch_readiness(&self, probe: Option<Probe>) {
        let Some(mut probe) = probe else { return };
        sleep(probe.schedule.initial_delay).await;
        loop {
            if let Some(well) = self.once(&mut probe).await {
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
        match probe.action.run(&self.context, &self.id, probe.schedule.timeout).await {
            Ok(()) => probe.verdict.count(true),
            Err(ActionError::Runtime(error)) => {
                tracing::debug!(container = %self.name, %error, "a probe could not be asked");
                None
            }
            Err(error) => {
                tracing::debug!(container = %self.name, %error, "a probe failed");
                probe.verdict.count(false)
            }
        }
    }

    /// Changes the run, and tells the workers if that changed anything.
    fn note(&self, change: impl FnOnce(&mut Run)) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, &self.id) else { return };
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
                let run = state.run(&self.name, &self.id);
                (stopping || run.is_none_or(|run| run.end.is_some())).then_some(())
            })
            .await;
    }
}

// === impl Probe ===

impl Probe {
    fn of(
        probe: Option<&k8s::Probe>,
        container: &k8s::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        let probe = probe?;
        Some(Self {
            action: Action::of_probe(probe, container, node)?,
            schedule: Schedule::of(probe),
            verdict: Verdict::of(probe),
        })
    }
}
