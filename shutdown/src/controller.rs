//! The driver: from the login manager's word to the node being let go.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    Event, Inhibitor, InhibitorState, PodKiller, Recorder, StatusOverride, WallClock, WallTime,
};

use crate::report::{Ended, ReportHeader};
use crate::{
    AdmissionGate, Budget, BudgetReport, Outcome, Plan, Policy, ProgressPhase, ProgressSender,
    ReportSink, RunOrder, RunReport, RunStop, ShutdownReport, StateFile, StateTimes, Trigger, plan,
    run_plan,
};

#[cfg(test)]
mod tests;

/// What the kubelet writes into a pod's status.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// A run that begins this long after the signal divides what is left instead of starting with
/// groups whose time is already over.
const LATE: Duration = Duration::from_secs(1);

/// The disk gets at least this long, however late it is.
const LEAST_FOR_REPORT: Duration = Duration::from_millis(100);

/// What a [`ShutdownController`] works with.
pub struct ShutdownParts<K, I> {
    /// Ends the pods.
    pub killer: Arc<K>,
    /// Announces the shutdown and waits for us.
    pub inhibitor: Arc<I>,
    /// Shut during a shutdown. The controller is the only one that opens it.
    pub gate: AdmissionGate,
    /// Read at the start of each run; a change during a run waits for the next.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// Keeps the report.
    pub reports: Arc<dyn ReportSink>,
    /// The kubelet's state file, if wanted.
    pub state_file: Option<StateFile>,
    /// Takes the events.
    pub recorder: Arc<dyn Recorder>,
    /// Takes every step.
    pub progress: ProgressSender,
    /// Labels the report.
    pub clock: WallClock,
    /// The kernel's boot id, for the report.
    pub boot_id: String,
    /// [`Trigger::LoginManager`], or [`Trigger::Drill`] for a rehearsal.
    pub trigger: Trigger,
}

/// Ends the node's pods in order when the login manager says that the node goes down.
///
/// It reads the inhibitor's state, so it also acts on a shutdown that began before it was started.
pub struct ShutdownController<K, I> {
    parts: ShutdownParts<K, I>,
}

/// How a run was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It went to its end.
    Finished,
    /// The login manager took the shutdown back, or began another.
    CalledOff,
    /// The controller was told to stop.
    Stopped,
}

// === impl ShutdownController ===

impl<K: PodKiller, I: Inhibitor> ShutdownController<K, I> {
    /// A controller that has not begun.
    pub fn new(parts: ShutdownParts<K, I>) -> Self {
        Self { parts }
    }

    /// Follows the login manager until `stop` fires or the inhibitor is gone.
    ///
    /// Per shutdown: the admission gate is shut, pods are ended as planned, the report is written,
    /// the lock is released once. A failing disk, a failing kill or a panic in between delays the
    /// release at most until the budget is spent. When the shutdown is called off, groups not
    /// started are spared and the gate opens; taking the lock again is the inhibitor's part.
    ///
    /// When `stop` fires during a run, no further pod is asked, the report says so, and neither
    /// the gate nor the lock is touched: the node still goes down, and the lock lives as long as
    /// its last holder.
    pub async fn run(self, stop: CancellationToken) {
        let mut states = self.parts.inhibitor.state();
        let mut handled = None;
        loop {
            let state = states.borrow_and_update().clone();
            if state.preparing && handled != Some(state.epoch) {
                handled = Some(state.epoch);
                if self.shut_down(&state, &states, &stop).await == Left::Stopped {
                    return;
                }
                continue;
            }
            if !state.preparing && handled.take().is_some() {
                // A run that went to its end before it was called off spared nobody.
                if self.parts.gate.is_shut() {
                    self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups: 0 });
                }
                self.parts.gate.open();
                self.parts.progress.phase(ProgressPhase::Cancelled);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = states.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn shut_down(
        &self,
        state: &InhibitorState,
        states: &watch::Receiver<InhibitorState>,
        stop: &CancellationToken,
    ) -> Left {
        let policy = Arc::clone(&self.parts.policy.borrow());
        if !policy.is_enabled() {
            self.parts.inhibitor.release().await;
            self.parts.progress.phase(ProgressPhase::Released);
            return Left::Finished;
        }
        self.parts.gate.shut();
        let now = Instant::now();
        let started = state.since.unwrap_or(now).min(now);
        let budget = Budget::new(&policy, state.delay);
        let header = self.header(state, budget, started);
        let noted = self.note_start(header.started_at);

        let running = CancellationToken::new();
        let run = self.end_pods(&policy, budget, started, header, &running);
        tokio::pin!(run);
        let over = |now: &InhibitorState| !now.preparing || now.epoch != state.epoch;
        let mut followed = states.clone();
        let called_off = async {
            let another_began = followed.wait_for(over).await.map(|now| now.preparing);
            match another_began {
                Ok(another_began) => another_began,
                // Nobody is left who could call it off.
                Err(_) => std::future::pending().await,
            }
        };
        let (left, (header, run)) = tokio::select! {
            done = &mut run => (Left::Finished, done),
            another_began = called_off => {
                running.cancel();
                if !another_began {
                    self.parts.gate.open();
                }
                (Left::CalledOff, run.await)
            }
            () = stop.cancelled() => {
                running.cancel();
                (Left::Stopped, run.await)
            }
        };
        // A run that was over at the moment it was called off is not a cancelled one.
        let left = if run.stop == RunStop::Cancelled { left } else { Left::Finished };
        let (spared_groups, left_pods) = (run.spared_groups(), run.left());

        self.parts.progress.phase(ProgressPhase::Ended);
        let ended = Ended { at: self.parts.clock.now(), took: started.elapsed() };
        let mut report = ShutdownReport::new(header, run, ended);
        if left == Left::Stopped {
            report.outcome = Outcome::Interrupted;
        }
        self.keep(report, noted, started, budget).await;

        match left {
            Left::Stopped => {}
            Left::CalledOff => {
                self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
                self.parts.progress.phase(ProgressPhase::Cancelled);
            }
            Left::Finished => {
                // Releasing now would give away the lock of another shutdown.
                let ours = !over(&states.borrow());
                if ours {
                    self.parts.inhibitor.release().await;
                    self.parts.progress.phase(ProgressPhase::Released);
                }
                let took = started.elapsed();
                self.parts.recorder.record(&Event::ShutdownEnded { took, left: left_pods });
            }
        }
        left
    }

    /// Plans and runs. Whatever panics in here ends up as a warning of the report.
    async fn end_pods(
        &self,
        policy: &Policy,
        budget: Budget,
        started: Instant,
        mut header: ReportHeader,
        cancel: &CancellationToken,
    ) -> (ReportHeader, RunReport) {
        let work = async {
            let plan = self.plan(policy, budget, started);
            let started_event =
                Event::ShutdownStarted { pods: plan.pod_count(), budget: plan.deadline };
            self.parts.recorder.record(&started_event);
            let order = RunOrder {
                reason: self.parts.trigger.kill_reason(),
                status: Some(StatusOverride {
                    reason: "Terminated".into(),
                    message: MESSAGE.into(),
                    disruption_message: Some(MESSAGE.into()),
                }),
                started,
                budget,
                recorder: Arc::clone(&self.parts.recorder),
                progress: self.parts.progress.clone(),
            };
            run_plan(&self.parts.killer, plan, &order, cancel).await
        };
        let outcome = AssertUnwindSafe(work).catch_unwind().await;
        let run = outcome.unwrap_or_else(|panic| {
            let why = panic_text(panic.as_ref());
            tracing::error!(why, "the shutdown run panicked; the node is let go");
            header.warnings.push(format!("the run panicked, which is a bug: {why}"));
            RunReport { groups: Vec::new(), stop: RunStop::Panicked }
        });
        (header, run)
    }

    fn plan(&self, policy: &Policy, budget: Budget, started: Instant) -> Plan {
        let mut pods = self.parts.killer.active_pods();
        // For the report's readers: the snapshot has no order of its own.
        pods.sort_unstable_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        let late = started.elapsed();
        if late < LATE {
            return plan(&pods, policy, Some(budget.pods));
        }
        tracing::warn!(?late, "the shutdown began earlier: the rest of the time is used");
        plan(&pods, policy, Some(budget.pods.saturating_sub(late))).begun_after(late)
    }

    fn header(&self, state: &InhibitorState, budget: Budget, started: Instant) -> ReportHeader {
        let now = self.parts.clock.now();
        ReportHeader {
            trigger: self.parts.trigger,
            node_action: state.kind,
            boot_id: self.parts.boot_id.clone(),
            started_at: now.checked_sub(started.elapsed()).unwrap_or(now),
            budget: BudgetReport::new(budget, state.delay_set_by.as_deref()),
            notice: None,
            endpoint_drain: None,
            resumed: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Writes the start into the state file, beside the run: no pod waits for the disk.
    fn note_start(&self, at: WallTime) -> JoinHandle<StateTimes> {
        let file = self.parts.state_file.clone();
        let times = StateTimes { start: Some(at), end: None };
        spawn_blocking(move || {
            store_times(file.as_ref(), times);
            times
        })
    }

    /// Keeps the report, for as long as there is time.
    async fn keep(
        &self,
        report: ShutdownReport,
        noted: JoinHandle<StateTimes>,
        started: Instant,
        budget: Budget,
    ) {
        let now = Instant::now();
        let until = (started + budget.report_until()).min(now + budget.reserve);
        let until = until.max(now + LEAST_FOR_REPORT);
        let (sink, file) = (Arc::clone(&self.parts.reports), self.parts.state_file.clone());
        let work = async move {
            // One after the other, or a slow first write would overtake the second.
            let times = noted.await.unwrap_or_default();
            let write = move || {
                if let Err(error) = sink.keep(&report) {
                    tracing::error!(error = %chain(&error), "the shutdown report is lost");
                }
                store_times(file.as_ref(), StateTimes { end: Some(report.ended_at), ..times });
            };
            if spawn_blocking(write).await.is_err() {
                tracing::error!("writing the shutdown report panicked; the report is lost");
            }
        };
        if timeout_at(until, work).await.is_err() {
            tracing::error!("the disk does not answer; the node is let go without a report");
        }
    }
}

fn store_times(file: Option<&StateFile>, times: StateTimes) {
    let Some(file) = file else { return };
    if let Err(error) = file.store(times) {
        tracing::warn!(error = %chain(&error), "the shutdown state file is not up to date");
    }
}

/// An error with its sources, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
