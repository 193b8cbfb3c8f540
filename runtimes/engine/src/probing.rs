//! Schedules probes and evaluates their results, for all runtimes.
//!
//! # Behaviour
//! * The initial delay of each probe counts from the start of the container, also after a restart of the agent.
//! * The probes of the containers that an earlier agent started begin spread over one period, as with a kubelet.
//! * Until the startup probe has passed, the other probes do not run and the container counts as not started.
//! * If a startup or liveness probe fails `failureThreshold` times in a row, the container is stopped and, if its
//!   policy says so, restarted.
//! * When the pod is asked to stop, its startup and liveness probes stop. Readiness probes go on until the container is
//!   gone, so that a pod that no longer serves gets no more requests (k8s#105780). A container whose startup probe had
//!   not passed until then is not asked whether it is ready either. All of this as with a kubelet
//!   (`StopLivenessAndStartup`).
//! * After a restart of the agent a container is as ready as the earlier agent found it until its probes say otherwise:
//!   an agent's restart is no reason to take a pod out of service, or to put it in. Its startup probe runs again before
//!   its liveness probe does, since the container may have been in the middle of its start. The startup probe of a
//!   sidecar has to pass again if no regular container has started yet, because those wait for it.
//!
//! One task per container that has probes; it sleeps between them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use winddown_shared::{EndCause, ProbeKind, critical};

use crate::container_plan::ContainerObservation;
use crate::disk_notes::NotedRun;

/// A container whose probes are run.
pub(crate) trait Probed: Send + Sync + 'static {
    type Action: Send + Sync;

    /// Runs the probe once. With `None` the result says nothing about the container, and is not counted.
    fn ask(
        &self,
        kind: ProbeKind,
        action: &Self::Action,
        timeout: Duration,
    ) -> impl Future<Output = Option<bool>> + Send;

    /// Stores a finding, and tells the workers if it is new.
    fn note(&self, found: ProbeFinding);

    /// Whether the container counts as started, although its startup probe may not have passed under this agent.
    fn is_started(&self) -> bool;

    /// Resolves when the pod is asked to stop.
    fn is_ending(&self) -> impl Future<Output = ()> + Send;

    /// Resolves when the container has ended.
    fn is_over(&self) -> impl Future<Output = ()> + Send;
}

/// A finding of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeFinding {
    /// The startup probe has passed.
    Started {
        /// Whether the container is ready too, because it has no readiness probe.
        ready: bool,
    },
    /// Whether the readiness probe passes.
    Ready(bool),
    /// The container has to be restarted, because this probe failed too often.
    Failing(ProbeKind),
}

/// The state of a run's postStart hook and its probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeState {
    /// Whether its postStart hook is done and its startup probe passed.
    pub started: bool,
    /// Whether its readiness probe passed.
    pub ready: bool,
    /// Whether its probes are being run, or it has none.
    pub probed: bool,
    /// Whether an earlier agent has begun its postStart hook and not seen the end, so that it is run again.
    pub hook_left: bool,
    /// The probe or postStart hook that failed, so that the run has to be restarted.
    pub failing: Option<EndCause>,
    /// Why the postStart hook, or the startup or liveness probe, failed last.
    pub output: Option<Arc<str>>,
}

/// The probes of a container.
#[derive(Clone, Debug)]
pub(crate) struct Probes<A> {
    /// Runs first, until it passes.
    startup: Option<Probe<A>>,
    /// Whether the container can serve requests.
    readiness: Option<Probe<A>>,
    /// Whether the container has to be restarted.
    liveness: Option<Probe<A>>,
}

#[derive(Clone, Debug)]
struct Probe<A> {
    kind: ProbeKind,
    action: A,
    schedule: Schedule,
    verdict: ProbeVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Schedule {
    /// The delay from the start of the container.
    initial_delay: Duration,
    /// A further delay of the first run under this agent; less than the period.
    shift: Duration,
    /// The time from the beginning of one run to that of the next, unless it takes longer; at least 1 s.
    period: Duration,
    /// How long an answer may take; at least 1 s.
    timeout: Duration,
}

/// The verdict on the latest results of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProbeVerdict {
    /// The number of consecutive successes that make it pass.
    successes: u32,
    /// The number of consecutive failures that make it fail.
    failures: u32,
    well: u32,
    bad: u32,
}

// === impl ProbeState ===

impl ProbeState {
    /// The state of a run that an earlier agent started and `noted`.
    pub(crate) const fn adopted(noted: NotedRun) -> Self {
        let (started, ready) = (!noted.hook, !noted.hook && !noted.unready);
        Self { started, ready, probed: false, hook_left: noted.hook, failing: None, output: None }
    }

    /// Whether the container is ready for requests.
    pub(crate) fn serves(&self) -> bool {
        self.started && self.ready
    }

    /// Whether the run was started by an earlier agent and has no prober yet.
    pub fn is_adopted(&self) -> bool {
        self.started && !self.probed
    }

    /// Records that the run's probes run from now on. `is_awaited`: other containers start only once it has started.
    /// `well`: its postStart hook succeeded.
    pub(crate) fn begin<A>(&mut self, probes: &Probes<A>, is_awaited: bool, well: bool) {
        // What waits for it must not start too soon. Without a readiness probe, one that was not ready had not started.
        let was = self.started && !is_awaited && (self.ready || probes.readiness.is_some());
        self.probed = true;
        self.failing = (!well).then_some(EndCause::PostStart);
        self.started = well && (was || probes.startup.is_none());
        self.ready |= well && probes.readiness.is_none();
    }

    /// Applies a finding. Returns whether it is new.
    pub(crate) fn note(&mut self, found: ProbeFinding) -> bool {
        let before = self.clone();
        match found {
            ProbeFinding::Started { ready } => {
                self.started = true;
                self.ready |= ready;
            }
            ProbeFinding::Ready(well) => self.ready = well,
            ProbeFinding::Failing(kind) => self.failing = Some(EndCause::Probe(kind)),
        }
        before != *self
    }

    /// The probe or the hook because of which the run is restarted, and why that failed.
    pub(crate) fn failure(&self) -> Option<(EndCause, Option<Arc<str>>)> {
        match self.failing? {
            failed @ (EndCause::Probe(_) | EndCause::PostStart) => {
                Some((failed, self.output.clone()))
            }
            EndCause::Pod | EndCause::Changed => None,
        }
    }

    /// The run's state for the plan. `is_outdated`: it has to be replaced in any case.
    pub fn seen(&self, is_outdated: bool) -> ContainerObservation {
        let failing = self.failing.is_some() || is_outdated;
        ContainerObservation::Running { started: self.started, failing }
    }
}

// === impl Probes ===

impl<A: Send + Sync + 'static> Probes<A> {
    /// The probes of a container for which `action` returns an action.
    pub(crate) fn of(
        container: &k8s::Container,
        action: impl Fn(&k8s::Probe) -> Option<A>,
    ) -> Self {
        let probe = |kind, probe: &Option<k8s::Probe>| {
            let probe = probe.as_ref()?;
            let (schedule, verdict) = (Schedule::of(probe), ProbeVerdict::of(probe));
            Some(Probe { kind, action: action(probe)?, schedule, verdict })
        };
        Self {
            startup: probe(ProbeKind::Startup, &container.startup_probe),
            readiness: probe(ProbeKind::Readiness, &container.readiness_probe),
            liveness: probe(ProbeKind::Liveness, &container.liveness_probe),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.startup.is_none() && self.readiness.is_none() && self.liveness.is_none()
    }

    /// Shifts the probes within their periods by the container's `id`: those of all containers that an earlier agent
    /// started would otherwise run in the same instant, and stay in step.
    pub(crate) fn spread(&mut self, id: &str) {
        for probe in [&mut self.startup, &mut self.readiness, &mut self.liveness] {
            let Some(Probe { kind, schedule, .. }) = probe else { continue };
            let mut hasher = DefaultHasher::new();
            (id, kind.as_str()).hash(&mut hasher);
            schedule.shift = schedule.period.mul_f64((hasher.finish() % 1000) as f64 / 1000.0);
        }
    }

    /// Runs the probes of a container that has run for `age`, in a task of their own until it is over, or `alive` closes.
    pub(crate) fn begin(
        self,
        probed: impl Probed<Action = A>,
        age: Duration,
        mut alive: watch::Receiver<()>,
    ) {
        critical::spawn("prober of a container", async move {
            tokio::select! {
                () = self.follow(&probed, age) => {}
                () = probed.is_over() => {}
                _ = alive.changed() => {}
            }
        });
    }

    async fn follow(self, probed: &impl Probed<Action = A>, age: Duration) {
        let Self { startup, readiness, liveness } = self;
        let now = Instant::now();
        let due = |Probe { schedule, .. }: &Probe<A>| {
            now + schedule.initial_delay.saturating_sub(age) + schedule.shift
        };
        if let Some(mut probe) = startup {
            match probe.until_ending(probed, due(&probe), true).await {
                Some(true) => probed.note(ProbeFinding::Started { ready: readiness.is_none() }),
                None if probed.is_started() => {}
                Some(false) | None => return,
            }
        }
        let readiness = async {
            if let Some(mut probe) = readiness {
                probe.watch_readiness(probed, due(&probe)).await;
            }
        };
        let liveness = async {
            if let Some(mut probe) = liveness {
                probe.until_ending(probed, due(&probe), false).await;
            }
        };
        tokio::join!(readiness, liveness);
    }
}

// === impl Probe ===

impl<A: Send + Sync + 'static> Probe<A> {
    async fn watch_readiness(&mut self, probed: &impl Probed<Action = A>, due: Instant) {
        let mut ticks = self.schedule.ticks(due);
        loop {
            ticks.tick().await;
            if let Some(well) = self.once(probed).await {
                probed.note(ProbeFinding::Ready(well));
            }
        }
    }

    /// Like [`until`](Self::until); returns `None` when the pod is asked to stop.
    async fn until_ending(
        &mut self,
        probed: &impl Probed<Action = A>,
        due: Instant,
        or_well: bool,
    ) -> Option<bool> {
        tokio::select! {
            biased;
            () = probed.is_ending() => None,
            passed = self.until(probed, due, or_well) => Some(passed),
        }
    }

    /// From `due` on, runs the probe until it fails (then the container has to be restarted) or, if `or_well`, passes.
    /// Returns whether it passed.
    async fn until(
        &mut self,
        probed: &impl Probed<Action = A>,
        due: Instant,
        or_well: bool,
    ) -> bool {
        let mut ticks = self.schedule.ticks(due);
        loop {
            ticks.tick().await;
            match self.once(probed).await {
                Some(false) => {
                    probed.note(ProbeFinding::Failing(self.kind));
                    return false;
                }
                Some(true) if or_well => return true,
                _ => {}
            }
        }
    }

    async fn once(&mut self, probed: &impl Probed<Action = A>) -> Option<bool> {
        let well = probed.ask(self.kind, &self.action, self.schedule.timeout).await?;
        self.verdict.count(well)
    }
}

// === impl Schedule ===

impl Schedule {
    /// Reads the schedule from the spec; missing and invalid values get Kubernetes' defaults.
    fn of(probe: &k8s::Probe) -> Self {
        let seconds = |given: Option<i32>, default: u64| {
            let given = given.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0);
            Duration::from_secs(given.unwrap_or(default))
        };
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            shift: Duration::ZERO,
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
        }
    }

    /// When the probe runs, from `due` or now on. As with a kubelet, a run that comes late, because the one before took longer
    /// than the period, does not delay the others.
    fn ticks(&self, due: Instant) -> Interval {
        let mut ticks = interval_at(due.max(Instant::now()), self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }
}

// === impl ProbeVerdict ===

impl ProbeVerdict {
    /// Reads the thresholds from the spec; there is no result yet.
    fn of(probe: &k8s::Probe) -> Self {
        let times = |given: Option<i32>, default: u32| {
            given.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            successes: times(probe.success_threshold, 1),
            failures: times(probe.failure_threshold, 3),
            well: 0,
            bad: 0,
        }
    }

    /// Counts a result. Returns the verdict when there are enough equal results in a row.
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
mod tests;
