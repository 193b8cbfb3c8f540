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
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::{sleep, timeout};
use winddown_shared::{Pod, RuntimeError};

use super::hook::{self, Handler};
use super::order::Command;
use super::pod::{PodEntry, Run};
use super::{Context, launch};
use crate::environment::NodeFacts;

/// One probe.
#[derive(Clone, Debug)]
struct Probe {
    handler: Handler,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    verdict: Verdict,
}

/// What the last results of a probe add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    /// Results in a row that make it well.
    successes: u32,
    /// Results in a row that make it bad.
    failures: u32,
    well: u32,
    bad: u32,
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
        sleep(probe.initial_delay).await;
        loop {
            let verdict = self.once(&mut probe).await;
            if let Some(well) = verdict {
                self.note(|run| run.ready = well);
            }
            sleep(probe.period).await;
        }
    }

    async fn watch_liveness(&self, probe: Option<Probe>) {
        let Some(mut probe) = probe else { return };
        self.until(&mut probe, false).await;
    }

    /// Asks until the container fails (then it is to be restarted) or, if `or_well`, is well. True
    /// in the latter case.
    async fn until(&self, probe: &mut Probe, or_well: bool) -> bool {
        sleep(probe.initial_delay).await;
        loop {
            match self.once(probe).await {
                Some(false) => {
                    self.note(|run| run.failing = true);
                    return false;
                }
                Some(true) if or_well => return true,
                _ => sleep(probe.period).await,
            }
        }
    }

    async fn once(&self, probe: &mut Probe) -> Option<bool> {
        let asked = hook::run(&self.context, &probe.handler, self.command.clone());
        let well = matches!(timeout(probe.timeout, asked).await, Ok(Ok(())));
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
        let seconds = |given: Option<i32>, default: u64| {
            Duration::from_secs(given.and_then(|s| u64::try_from(s).ok()).unwrap_or(default))
        };
        let times = |given: Option<i32>, default: u32| {
            given.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0).unwrap_or(default)
        };
        Some(Self {
            handler: Handler::of(&handler, container, node)?,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            timeout: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
            verdict: Verdict {
                successes: times(probe.success_threshold, 1),
                failures: times(probe.failure_threshold, 3),
                well: 0,
                bad: 0,
            },
        })
    }
}

// === impl Verdict ===

impl Verdict {
    /// Counts a result. Says what the container is once enough results in a row agree.
    fn count(&mut self, well: bool) -> Option<bool> {
        if well {
            (self.well, self.bad) = (self.well.saturating_add(1), 0);
            (self.well >= self.successes).then_some(true)
        } else {
            (self.well, self.bad) = (0, self.bad.saturating_add(1));
            (self.bad >= self.failures).then_some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;

    #[test]
    fn a_verdict_needs_enough_results_in_a_row() {
        let mut verdict = Verdict { successes: 2, failures: 3, well: 0, bad: 0 };
        let results = "++--+---+-++";
        let said: String = results
            .chars()
            .map(|c| match verdict.count(c == '+') {
                Some(true) => 'W',
                Some(false) => 'B',
                None => '.',
            })
            .collect();
        assert_eq!(said, ".W.....B...W");
    }
}
