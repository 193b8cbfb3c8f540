//! The driver: from the login manager's word, or a notice, to the node being let go.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{Event, Inhibitor, Notices, PodKiller, Recorder, ShutdownWork, WallClock};

use crate::{
    AdmissionGate, BootClock, GroupReport, Guard, Policy, ProgressPhase, ProgressSender,
    RecordPlace, ReportSink, RunPhase, RunRecord, ShutdownReport, StateFile, Trigger,
};
use signals::{ShutdownSignals, SignalState, before_now, until};

mod admission;
mod fallback;
mod finalize;
mod release;
mod shutdown_run;
mod signals;
#[cfg(test)]
mod tests;

pub(crate) use shutdown_run::status_of_ended;

/// What a [`ShutdownController`] works with.
pub struct ShutdownParts<K> {
    /// Ends the pods.
    pub killer: Arc<K>,
    /// Announces the shutdown and waits for us.
    pub inhibitor: Arc<dyn Inhibitor>,
    /// Announces that the node ends at a certain time, which nothing can prevent.
    pub notices: Notices,
    /// Shut during a shutdown. The controller shuts it for a shutdown or a notice, and lifts these
    /// reasons alone: what others keep shut stays shut.
    pub gate: AdmissionGate,
    /// Read at the start of each run; a change during a run waits for the next.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// Keeps the report.
    pub reports: Arc<dyn ReportSink>,
    /// Keep the record of the run, the best place first: one that is slow or refuses is left for
    /// the next. With one that is memory ([`RecordPlace::is_volatile`]) most of the run waits for no
    /// other. None keeps no record, and an agent that is killed in the middle is not replaced.
    pub records: Vec<Arc<dyn RecordPlace>>,
    /// The record of this boot that was found at the start ([`RunRecord::of_boot`]). Shut the gate
    /// with [`ShutdownController::hold_admission`] before any pod is admitted.
    pub carried: Option<RunRecord>,
    /// The kubelet's state file, if wanted.
    pub state_file: Option<StateFile>,
    /// Which pods hold shutdowns: the report names those that one went past.
    pub guard: watch::Receiver<Guard>,
    /// What plug-ins do at certain points.
    pub work: Vec<ShutdownWork>,
    /// Takes the events.
    pub recorder: Arc<dyn Recorder>,
    /// Takes every step.
    pub progress: ProgressSender,
    /// Labels the report.
    pub clock: WallClock,
    /// What the agents of one boot have in common.
    pub boot_clock: BootClock,
    /// The kernel's boot id, for the report and the record.
    pub boot_id: String,
    /// What reports name where the login manager began the run: [`Trigger::LoginManager`], or
    /// [`Trigger::Drill`] for a rehearsal.
    pub trigger: Trigger,
}

/// Ends the node's pods in order when the login manager says that the node goes down, or a notice
/// says when it will.
///
/// It reads states, so it also acts on a shutdown that began before it was started. Each step is
/// persisted before it takes effect: if the agent is killed in the middle, the next one continues
/// with the time that is left.
pub struct ShutdownController<K> {
    parts: ShutdownParts<K>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It went to its end.
    Finished,
    /// It was called off, or the login manager began another.
    CalledOff,
    /// The controller was told to stop.
    Stopped,
}

/// The state between two signals.
enum Stage {
    /// No run.
    Idle,
    /// An earlier agent was in the middle of a run or had finished. Its signal has not been
    /// received yet.
    Carried(Box<RunRecord>),
    /// The run is over, and the node still ends.
    Done {
        /// The login manager's shutdown that was released, if any.
        epoch: Option<u64>,
        /// Its record on disk, without pods.
        record: Option<Box<RunRecord>>,
        /// Its report, if this agent has made it.
        report: Option<Box<ShutdownReport>>,
    },
}

/// The next transition of a [`ShutdownController`].
enum Transition {
    /// A step was done: check at once what follows.
    Done(Stage),
    /// Nothing follows before the next signal, or before that moment.
    Wait(Stage, Option<Instant>),
    /// The controller was told to stop.
    Stop,
}

/// What to do with an earlier agent's run.
enum ResumeDecision {
    /// The node still ends.
    Resume,
    /// Not known yet; the run is over at this moment.
    Undecided(Instant),
    /// Nothing ends the node any more.
    Drop,
}

// === impl ShutdownParts ===

impl<K: PodKiller> ShutdownParts<K> {
    /// What every shutdown needs, and nothing else: no notices, records, report, state file, work or events, and
    /// an admission gate and a progress of its own. Change the fields that are to be otherwise.
    pub fn new(
        killer: Arc<K>,
        inhibitor: Arc<impl Inhibitor>,
        policy: Policy,
        clock: WallClock,
        boot_clock: BootClock,
        boot_id: impl Into<String>,
    ) -> Self {
        Self {
            killer,
            inhibitor,
            notices: watch::Sender::default().subscribe(),
            gate: AdmissionGate::new(),
            policy: watch::Sender::new(Arc::new(policy)).subscribe(),
            reports: Arc::new(()),
            records: Vec::new(),
            carried: None,
            state_file: None,
            guard: watch::Sender::default().subscribe(),
            work: Vec::new(),
            recorder: Arc::new(()),
            progress: ProgressSender::new(),
            clock,
            boot_clock,
            boot_id: boot_id.into(),
            trigger: Trigger::LoginManager,
        }
    }
}

// === impl ShutdownController ===

impl<K: PodKiller> ShutdownController<K> {
    /// A controller that has not begun.
    pub fn new(parts: ShutdownParts<K>) -> Self {
        Self { parts }
    }

    /// Follows the login manager and the notices until `stop` fires or the inhibitor is gone.
    ///
    /// For each shutdown, the admission gate is shut, pods turn not ready and are ended as planned,
    /// the report is written, and the lock is released once. A failing disk, a failing kill or a
    /// panic in between delays the release at most until the budget is spent. When the shutdown is
    /// called off, groups not started are spared and the gate opens, unless something else (a
    /// drain) keeps it shut; taking the lock again is the inhibitor's part. After a notice the gate
    /// stays shut for as long as the notice is in force.
    ///
    /// When `stop` fires during a run, no further pod is asked, and neither the gate nor the lock is
    /// touched: the node still goes down, and the lock lives as long as its last holder. What was
    /// done is in the record for the next agent, or in a report if there is no record.
    ///
    /// # Panics
    /// After a panic in here that was not survived by asking all pods at once within the run. All pods
    /// have been asked by then if that was possible, and the lock is given back if they are gone. The
    /// process should end, so that another one goes on: see [`critical`](winddown_shared::critical).
    pub async fn run(mut self, stop: CancellationToken) {
        let mut signals =
            ShutdownSignals::new(self.parts.inhibitor.state(), self.parts.notices.clone());
        let mut stage = self.pick_up(&mut signals);
        loop {
            let signal = signals.current();
            let wait_until;
            let step =
                AssertUnwindSafe(self.step(stage, &signal, &mut signals, &stop)).catch_unwind();
            let next = match step.await {
                Ok(next) => next,
                Err(panic) => self.last_resort(&signals.current(), panic).await,
            };
            (stage, wait_until) = match next {
                Transition::Done(stage) => (stage, Some(Instant::now())),
                Transition::Wait(stage, until) => (stage, until),
                Transition::Stop => return,
            };
            tokio::select! {
                biased;
                () = until(wait_until) => {}
                () = stop.cancelled() => return,
                () = signals.changed() => if signals.is_closed() { return },
            }
        }
    }

    /// Makes the next step that `signal` asks for.
    async fn step(
        &self,
        stage: Stage,
        signal: &SignalState,
        signals: &mut ShutdownSignals,
        stop: &CancellationToken,
    ) -> Transition {
        match stage {
            Stage::Carried(record) => match self.resume_decision(&record, signal) {
                ResumeDecision::Undecided(until) => {
                    Transition::Wait(Stage::Carried(record), Some(until))
                }
                ResumeDecision::Resume if record.phase.is_over() => {
                    self.let_go(signal, Some(record), None).await
                }
                ResumeDecision::Resume => {
                    self.shut_down(signal, signals, Some(*record), stop).await
                }
                ResumeDecision::Drop => {
                    self.lift_all();
                    self.beside(signals, self.end_carried(*record)).await
                }
            },
            Stage::Idle if signal.ends_the_node() => {
                self.shut_down(signal, signals, None, stop).await
            }
            // A signal before the first step may be over by then.
            Stage::Idle => {
                self.lift_all();
                Transition::Wait(Stage::Idle, None)
            }
            Stage::Done { record, report, .. } if !signal.ends_the_node() => {
                // Read before it is lifted: a gate that is not held was reported already.
                let held = self.holds_admission();
                self.lift_all();
                self.beside(signals, self.called_off_afterwards(held, record, report)).await
            }
            Stage::Done { epoch: None, record, report } if signal.login.preparing => {
                self.let_go(signal, record, report).await
            }
            // The login manager has begun another one.
            Stage::Done { epoch: Some(epoch), .. }
                if signal.login.preparing && signal.login.epoch != epoch =>
            {
                Transition::Done(Stage::Idle)
            }
            stage @ Stage::Done { .. } => {
                self.follow_reasons(signal);
                Transition::Wait(stage, None)
            }
        }
    }

    /// Picks up where an earlier agent left off. Pods that it made not ready turn not ready again.
    fn pick_up(&mut self, signals: &mut ShutdownSignals) -> Stage {
        let carried = self.parts.carried.take();
        let Some(record) = carried.filter(|record| record.phase != RunPhase::Cancelled) else {
            return Stage::Idle;
        };
        self.parts.gate.shut(self.own_reason());
        self.parts.killer.lame_duck(self.own_reason(), true);
        signals.restore_notice(&record, self.start_of(&record));
        Stage::Carried(Box::new(record))
    }

    /// When the run began, on the clock that decides.
    fn start_of(&self, record: &RunRecord) -> Instant {
        let started = Duration::from_millis(record.started_boot_ms);
        before_now(self.parts.boot_clock.now().saturating_sub(started))
    }

    /// Waits for a silent login manager as long as the run would have lasted: it may be the first
    /// to go down.
    fn resume_decision(&self, record: &RunRecord, signal: &SignalState) -> ResumeDecision {
        if signal.ends_the_node() {
            return ResumeDecision::Resume;
        }
        let budget = record.budget();
        let over_at = self.start_of(record) + budget.pods + budget.reserve;
        match !signal.login.lock.is_known() && Instant::now() < over_at {
            true => ResumeDecision::Undecided(over_at),
            false => ResumeDecision::Drop,
        }
    }

    /// Releases the node without a run: the pods have ended already.
    async fn let_go(
        &self,
        signal: &SignalState,
        record: Option<Box<RunRecord>>,
        report: Option<Box<ShutdownReport>>,
    ) -> Transition {
        self.follow_reasons(signal);
        let epoch = signal.login.preparing.then_some(signal.login.epoch);
        if epoch.is_some() {
            self.parts.inhibitor.release().await;
        }
        self.parts.progress.phase(ProgressPhase::Released);
        Transition::Done(Stage::Done { epoch, record, report })
    }

    /// The run of an earlier agent was called off while no agent was running.
    async fn end_carried(&self, record: RunRecord) -> Transition {
        if record.phase.is_over() {
            tracing::info!(
                "the shutdown that ended this boot's pods is over: pods are let in again"
            );
            // Otherwise the node did go down: after a soft reboot, or the restart of a container,
            // everything but the kernel was restarted. Neither the time nor the kind is always
            // known.
            let begun = Duration::from_millis(record.started_boot_ms);
            let is_same_system = begun >= self.parts.boot_clock.system_start();
            if is_same_system && record.report.node_action.as_deref() != Some("softReboot") {
                self.report_called_off(&record).await;
            }
        } else {
            tracing::warn!(
                "the shutdown that an earlier agent was in the middle of was called off"
            );
            self.report_called_off(&record).await;
            let spared_groups = GroupReport::spared(&record.report.groups);
            self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
            self.parts.progress.phase(ProgressPhase::Cancelled);
        }
        self.close(record).await;
        Transition::Done(Stage::Idle)
    }

    /// The node stays up. A run that was called off after its end spared no pod.
    ///
    /// The report must not claim that the node went down, so it is stored again as called off.
    async fn called_off_afterwards(
        &self,
        held: bool,
        record: Option<Box<RunRecord>>,
        report: Option<Box<ShutdownReport>>,
    ) -> Transition {
        if let Some(report) = report {
            let why = "the pods had ended when the shutdown was called off";
            self.report_again_as_called_off(*report, why).await;
        } else if let Some(record) = record.as_deref() {
            self.report_called_off(record).await;
        }
        if held {
            self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups: 0 });
        }
        if let Some(record) = record {
            self.close(*record).await;
        }
        self.parts.progress.phase(ProgressPhase::Cancelled);
        Transition::Done(Stage::Idle)
    }
}
