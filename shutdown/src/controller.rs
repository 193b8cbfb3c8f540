//! The shutdown controller: from the login manager's signal, or a notice, to the release of the node.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    Event, GateReason, Inhibitor, MachineState, Notices, Recorder, ShutdownWork, WallClock,
};

use crate::EndingPods;
use crate::{
    AdmissionGate, BootClock, Budget, GroupReport, Policy, ProgressPhase, ProgressSender,
    RecordStore, ReportSink, RunPhase, RunRecord, ShutdownReport, StateFile, Trigger, UnitStop,
    UnstoredReports,
};
use signals::{ShutdownSignals, SignalState, until};

mod admission;
mod fallback;
mod finalize;
mod release;
mod shutdown_run;
mod signals;
#[cfg(test)]
mod tests;

pub(crate) use shutdown_run::status_of_ended;
pub(crate) use signals::before_now;

/// Returns what speaks against a shutdown, in one sentence for each reason.
pub type Objections = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The dependencies of a [`ShutdownController`].
// Over the limit because it is a list of dependencies: `new` takes the six that have no default.
#[non_exhaustive]
pub struct ShutdownParts<K> {
    /// Stops the pods.
    pub killer: Arc<K>,
    /// Announces the shutdown, and delays it until the lock is released.
    pub inhibitor: Arc<dyn Inhibitor>,
    /// Announces that the node goes down at a certain time, which nothing can prevent.
    pub notices: Notices,
    /// The stop of the agent's unit by a machine that goes down without an announcement; none so far.
    pub unit_stop: watch::Receiver<Option<UnitStop>>,
    /// The admission gate. The controller closes it for a shutdown or a notice, and lifts only these
    /// reasons: if it is also closed for another reason, it stays closed.
    pub gate: AdmissionGate,
    /// The policy. Read at the start of each run; a change during a run applies to the next.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// Stores the report.
    pub reports: Arc<dyn ReportSink>,
    /// The places for the run's record, best first: if one is slow or fails, the next is used. With a place
    /// in memory ([`RecordStore::is_volatile`]), most of the run waits for no other. Without any place there
    /// is no record, and if the agent is killed in the middle of a run, the next one cannot resume it.
    pub records: Vec<Arc<dyn RecordStore>>,
    /// The record of this boot that was found at the start ([`RunRecord::of_boot`]). Call
    /// [`ShutdownController::take_over`] before any pod is admitted.
    pub carried: Option<RunRecord>,
    /// The kubelet's state file, if wanted.
    pub state_file: Option<StateFile>,
    /// What speaks against a shutdown. If one happens anyway, its report has these as warnings.
    pub objections: Objections,
    /// The work of plug-ins at certain points of a shutdown.
    pub work: Vec<ShutdownWork>,
    /// Receives the events.
    pub recorder: Arc<dyn Recorder>,
    /// Receives the progress at every step.
    pub progress: ProgressSender,
    /// The clock for the times in the report.
    pub clock: WallClock,
    /// The clock that all agents of one boot share.
    pub boot_clock: BootClock,
    /// The kernel's boot id, for the report and the record.
    pub boot_id: String,
    /// The trigger in reports of runs that the login manager began: [`Trigger::LoginManager`], or
    /// [`Trigger::Drill`] for a rehearsal.
    pub trigger: Trigger,
}

/// Stops the node's pods in order when the login manager announces that the node goes down, when a notice says
/// that it will, or when it goes down past both.
///
/// It reads states rather than events, so it also acts on a shutdown that began before it was started. Each
/// step is persisted before it takes effect: if the agent is killed in the middle, the next one continues
/// with the time left.
pub struct ShutdownController<K> {
    parts: ShutdownParts<K>,
    unstored: UnstoredReports,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    Finished,
    /// It was called off, or the login manager began another shutdown.
    CalledOff,
    /// The controller was requested to stop.
    Stopped,
}

/// The state between two signals.
enum Stage {
    Idle,
    /// An earlier agent was in the middle of a run or had completed it. Its signal has not been
    /// received yet.
    Carried(Box<RunRecord>),
    /// The run is over, and the node is still going down.
    Done {
        /// The epoch of the login manager's shutdown that was released, if any.
        epoch: Option<u64>,
        /// When it was over.
        at: Instant,
        /// The run's record on disk, without pods.
        record: Option<Box<RunRecord>>,
        /// The run's report, if this agent created it.
        report: Option<Box<ShutdownReport>>,
    },
}

/// The next transition of a [`ShutdownController`].
enum Transition {
    /// A step is done. Check at once what follows.
    Done(Stage),
    /// Nothing follows before the next signal, or before this moment.
    Wait(Stage, Option<Instant>),
    /// The controller was requested to stop.
    Stop,
}

/// What to do with an earlier agent's run.
#[derive(Debug, PartialEq)]
enum ResumeDecision {
    /// The node is still going down.
    Resume,
    /// It is not known yet. The run's time is over at this moment.
    Undecided(Instant),
    /// The node is not going down any more.
    Drop,
}

// === impl Stage ===

impl Stage {
    /// A run that is over now.
    fn done(
        epoch: Option<u64>,
        record: Option<Box<RunRecord>>,
        report: Option<Box<ShutdownReport>>,
    ) -> Self {
        Self::Done { epoch, at: Instant::now(), record, report }
    }
}

// === impl ShutdownParts ===

impl<K: EndingPods> ShutdownParts<K> {
    /// Creates parts with only what every shutdown needs: no notices, unit stop, records, reports, state file, work or
    /// events, and a new admission gate and progress. Set other fields as needed.
    pub fn new(
        killer: Arc<K>,
        inhibitor: Arc<dyn Inhibitor>,
        policy: Policy,
        clock: WallClock,
        boot_clock: BootClock,
        boot_id: impl Into<String>,
    ) -> Self {
        Self {
            killer,
            inhibitor,
            notices: watch::Sender::default().subscribe(),
            unit_stop: watch::Sender::default().subscribe(),
            gate: AdmissionGate::new(),
            policy: watch::Sender::new(Arc::new(policy)).subscribe(),
            reports: Arc::new(()),
            records: Vec::new(),
            carried: None,
            state_file: None,
            objections: Arc::new(Vec::new),
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

impl<K: EndingPods> ShutdownController<K> {
    /// Creates a controller. It does nothing until [`run`](Self::run) is polled, except that new pods wait for its first
    /// decision if a shutdown is under way: see [`take_over`](Self::take_over).
    pub fn new(parts: ShutdownParts<K>) -> Self {
        let unstored = UnstoredReports::new(Arc::clone(&parts.reports));
        let controller = Self { unstored, parts };
        controller.hold_undecided();
        controller
    }

    /// Follows the login manager, the notices and the unit's stop until `stop` is cancelled or the inhibitor is gone.
    ///
    /// For each shutdown, it closes the admission gate, makes pods not ready, stops them as planned, writes
    /// the report, and releases the lock once. As long as a record of the run is kept, the lock does not wait for a
    /// report on a busy disk; [`ProgressPhase::Released`](crate::ProgressPhase::Released) does. A failing disk, a failing
    /// kill or a panic in between delays the release at most until the budget is spent. If the shutdown is called off, groups that have not
    /// started are spared and the gate is opened, unless something else (a drain) keeps it closed; the
    /// inhibitor takes the lock again. After a notice, the gate stays closed while the notice is in force.
    ///
    /// If `stop` is cancelled during a run, no further pod is requested to stop, and neither the gate nor the
    /// lock is touched: the node still goes down, and the lock is held as long as any process holds it. The
    /// progress is in the record for the next agent, or in a report if there is no record.
    ///
    /// # Panics
    /// Panics after a panic of the controller that stopping all pods at once within the run did not handle.
    /// By then all pods have been requested to stop if that was possible, unless shutdowns stop none, and the lock has
    /// been released if they are gone or their time is over. The process should exit, so that another one continues: see
    /// [`critical`](winddown_shared::critical).
    pub async fn run(mut self, stop: CancellationToken) {
        let mut signals = self.signals();
        let mut stage = self.pick_up(&mut signals).await;
        loop {
            let signal = signals.current();
            self.decide(&stage, &signal);
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
            if !matches!(stage, Stage::Carried(_)) {
                self.parts.progress.follow_policy(None);
            }
            tokio::select! {
                biased;
                () = until(wait_until) => {}
                () = stop.cancelled() => return,
                () = signals.changed() => if signals.is_closed() { return },
            }
        }
    }

    fn signals(&self) -> ShutdownSignals {
        let ShutdownParts { inhibitor, policy, notices, unit_stop, .. } = &self.parts;
        ShutdownSignals::new(inhibitor.state(), policy.clone(), notices.clone(), unit_stop.clone())
    }

    /// Takes the next step for `signal`.
    async fn step(
        &self,
        stage: Stage,
        signal: &SignalState,
        signals: &mut ShutdownSignals,
        stop: &CancellationToken,
    ) -> Transition {
        match stage {
            Stage::Carried(record) => self.carry_on(record, signal, signals, stop).await,
            Stage::Idle if signal.ends_the_node() => {
                self.shut_down(signal, signals, None, stop).await
            }
            // A signal from before the first step may be over by now.
            Stage::Idle => {
                self.lift_all();
                Transition::Wait(Stage::Idle, None)
            }
            Stage::Done { record, report, .. } if !signal.ends_the_node() => {
                // Read before it is lifted: if the gate is not held, the event has been recorded already.
                let held = self.holds_admission();
                self.lift_all();
                self.beside(signals, self.called_off_afterwards(held, record, report)).await
            }
            // Shutdowns stopped no pods when the notice came. The policy may have changed since.
            Stage::Done { epoch: None, record: None, report: None, .. }
                if signal.login.preparing || self.parts.policy.borrow().is_enabled() =>
            {
                Transition::Done(Stage::Idle)
            }
            // Beside a kubelet the gate keeps no pod away, so some may have come back.
            Stage::Done { epoch, at, .. }
                if signal.asks_after(epoch, at) && self.may_have_pods() =>
            {
                // It begins with the notice that asks for it.
                let mut signal = signal.clone();
                signal.notices.sort_by_key(|notice| notice.since <= at);
                self.shut_down(&signal, signals, None, stop).await
            }
            Stage::Done { epoch: None, record, report, .. } if signal.login.preparing => {
                self.release_without_run(signal, record, report).await
            }
            // The login manager has begun another shutdown.
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

    /// Takes the next step of an earlier agent's run.
    async fn carry_on(
        &self,
        record: Box<RunRecord>,
        signal: &SignalState,
        signals: &mut ShutdownSignals,
        stop: &CancellationToken,
    ) -> Transition {
        match self.resume_decision(&record, signal) {
            ResumeDecision::Undecided(until) => {
                self.ask_machine(&record, self.start_of(&record), signals).await;
                match self.resume_decision(&record, &signals.current()) {
                    ResumeDecision::Undecided(_) => {
                        Transition::Wait(Stage::Carried(record), Some(until))
                    }
                    _ => Transition::Done(Stage::Carried(record)),
                }
            }
            ResumeDecision::Resume
                if record.phase.is_over()
                    && signal.login.preparing
                    && self.may_have_others(&record) =>
            {
                Transition::Done(Stage::Idle)
            }
            ResumeDecision::Resume if record.phase.is_over() => {
                self.release_without_run(signal, Some(record), None).await
            }
            ResumeDecision::Resume => self.shut_down(signal, signals, Some(*record), stop).await,
            ResumeDecision::Drop => {
                self.lift_all();
                let is_known = record.is_decided_by(&signal.login, signal.machine);
                self.beside(signals, self.end_carried(*record, is_known)).await
            }
        }
    }

    /// The policy that terminates the pods if the node goes down now.
    fn policy_in_force(&self) -> Arc<Policy> {
        self.parts.progress.policy_in_force(&self.parts.policy.borrow())
    }

    fn may_have_pods(&self) -> bool {
        !self.parts.killer.running().is_known_empty()
    }

    /// Whether pods may run that the run of `record`, which is over, has not left. Those of a run for the login manager show
    /// that it has begun another shutdown: with the same one, no other pods start.
    fn may_have_others(&self, record: &RunRecord) -> bool {
        if record.login_since_ms.is_none() {
            return self.may_have_pods();
        }
        let known = record.report.pods().map(|(_, pod)| (&*pod.namespace, &*pod.name));
        let known: HashSet<(&str, &str)> = known.collect();
        let running = self.parts.killer.running().into_pods();
        !running.iter().all(|pod| known.contains(&(&**pod.namespace(), &**pod.name())))
    }

    /// Picks up where an earlier agent left off: no pod is admitted or refused before it is known what becomes of the
    /// run. Pods of a run in progress are not ready again.
    async fn pick_up(&mut self, signals: &mut ShutdownSignals) -> Stage {
        let carried = self.parts.carried.take();
        let Some(record) = carried.filter(|record| record.phase != RunPhase::Cancelled) else {
            return Stage::Idle;
        };
        self.parts.gate.shut(GateReason::Startup);
        self.parts.killer.lame_duck(GateReason::Shutdown, true);
        self.parts.progress.found(&record, &self.parts.policy.borrow());
        let started = self.start_of(&record);
        signals.restore_notice(&record, started);
        self.ask_machine(&record, started, signals).await;
        Stage::Carried(Box::new(record))
    }

    /// Asks the service manager whether the machine is going down, and how long it waits, unless that is known already.
    async fn ask_machine(
        &self,
        record: &RunRecord,
        started: Instant,
        signals: &mut ShutdownSignals,
    ) {
        let signal = signals.current();
        if !signal.ends_the_node() && signal.machine == MachineState::Unknown {
            // As the run was told: what is configured now is for the next.
            let budget = record.budget();
            let delay = budget.delay.unwrap_or(budget.pods + budget.reserve);
            signals.found(self.parts.inhibitor.machine().await, started, delay);
        }
    }

    /// Returns when the run began, on the monotonic clock.
    fn start_of(&self, record: &RunRecord) -> Instant {
        let started = Duration::from_millis(record.started_boot_ms);
        before_now(self.parts.boot_clock.now().saturating_sub(started))
    }

    /// Decides what to do with an earlier agent's run. If it is unknown whether the node is going down, the decision
    /// waits for as long as the run would have taken: who could tell may be the first to go down.
    fn resume_decision(&self, record: &RunRecord, signal: &SignalState) -> ResumeDecision {
        if signal.ends_the_node() {
            return ResumeDecision::Resume;
        }
        let budget = record.budget();
        let over_at = self.start_of(record) + budget.pods + budget.reserve;
        let is_known = record.is_decided_by(&signal.login, signal.machine);
        match !is_known && Instant::now() < over_at {
            true => ResumeDecision::Undecided(over_at),
            false => ResumeDecision::Drop,
        }
    }

    /// Releases the node without a run, because the pods have stopped already or shutdowns stop none.
    async fn release_without_run(
        &self,
        signal: &SignalState,
        record: Option<Box<RunRecord>>,
        report: Option<Box<ShutdownReport>>,
    ) -> Transition {
        self.follow_reasons(signal);
        let epoch = signal.login.preparing.then_some(signal.login.epoch);
        if epoch.is_some() {
            let limit = signal.time_limit(signal.since(Instant::now()), Duration::ZERO);
            let limit = limit.map(|limit| limit.until);
            let budget = Budget::new(&self.parts.policy.borrow(), limit);
            self.keep_before_release(budget.reserve).await;
            self.parts.inhibitor.release().await;
        }
        // A notice that terminates no pod releases nothing.
        if epoch.is_some() || record.is_some() || report.is_some() {
            self.parts.progress.released(epoch);
        }
        Transition::Done(Stage::done(epoch, record, report))
    }

    /// Closes an earlier agent's run that was called off while no agent was running, or whose time is over while it is
    /// not known whether it was.
    async fn end_carried(&self, record: RunRecord, is_known: bool) -> Transition {
        if !is_known {
            tracing::warn!(
                "it is unknown whether the shutdown was cancelled, and its time is over: admitting pods again"
            );
            if !record.phase.is_over() {
                self.report_unknown(&record).await;
            }
        } else if record.phase.is_over() {
            tracing::info!(
                "the shutdown that terminated this boot's pods is over: admitting pods again"
            );
            // Report it only if the node did not go down. A soft-reboot took it down, also where it is unknown when the
            // system was started again.
            if record.report.node_action.as_deref() != Some("softReboot") {
                self.report_called_off(&record).await;
            }
        } else {
            tracing::warn!("the shutdown that the previous agent was running was cancelled");
            self.report_called_off(&record).await;
            let spared_groups = GroupReport::spared(&record.report.groups);
            self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
            self.parts.progress.phase(ProgressPhase::Cancelled);
        }
        self.close(record).await;
        Transition::Done(Stage::Idle)
    }

    /// Handles a run that was called off after its end, so that no pod was spared but the node stays up.
    ///
    /// The report must not claim that the node went down, so it is stored again.
    async fn called_off_afterwards(
        &self,
        held: bool,
        record: Option<Box<RunRecord>>,
        report: Option<Box<ShutdownReport>>,
    ) -> Transition {
        if let Some(report) = report {
            self.report_stayed_up(*report).await;
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
