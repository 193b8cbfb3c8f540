//! One run of a shutdown, from the signal to its end.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::critical::panic_text;
use winddown_shared::{
    Event, GateReason, KillReason, NodeEnding, PodRef, RequestReport, StatusOverride,
};

use super::finalize::Noted;
use super::signals::{ShutdownSignals, SignalState};
use super::{RunEnd, ShutdownController, Stage, Transition};
use crate::EndingPods;
use crate::budget::why_unawaited;
use crate::grace::ROUNDING_TOLERANCE;
use crate::journal::{Journal, RunStart};
use crate::plan::plan_on;
use crate::report::{Ended, ReportHeader};
use crate::run::{RunParams, carry_out};
use crate::run_context::RunContext;
use crate::{
    Budget, BudgetReport, GroupReport, Outcome, Plan, Policy, ProgressPhase, RunOrder, RunPhase,
    RunRecord, RunReport, RunStop, ShutdownReport, Trigger, WorkReport,
};

/// The kubelet's message in a pod's status.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// Returns the status override of a pod that a shutdown stops.
pub(crate) fn status_of_ended() -> StatusOverride {
    StatusOverride::failed("Terminated", MESSAGE, Some(MESSAGE.into()))
}

/// How long a disk that is not busy takes to store a report. Right after the pods' exit the disk often is: the container
/// runtime cleans up, and a write may take a second. The machine does not wait for that as long as the record of the run
/// is kept; the agent does, before it exits.
const QUIET_DISK: Duration = Duration::from_millis(10);

/// The state of a run, in addition to the controller's parts.
struct ShutdownRun {
    policy: Arc<Policy>,
    started: Instant,
    context: RunContext,
    journal: Journal,
    carried: Option<Carried>,
}

/// The progress of an earlier agent.
struct Carried {
    groups: Vec<GroupReport>,
    first_group: Duration,
    work: Vec<WorkReport>,
}

/// What was released after a run.
struct Release {
    /// The epoch of the login manager's shutdown, if there is one.
    epoch: Option<u64>,
    of_lock: bool,
    /// Whether nothing holds up the node's end any more.
    of_node: bool,
}

impl<K: EndingPods> ShutdownController<K> {
    /// Runs a shutdown because of `signal`, or resumes one.
    pub(super) async fn shut_down(
        &self,
        signal: &SignalState,
        signals: &mut ShutdownSignals,
        carried: Option<RunRecord>,
        stop: &CancellationToken,
    ) -> Transition {
        let policy = self.policy_in_force();
        if carried.is_none() && !policy.is_enabled() {
            return self.release_without_run(signal, None, None).await;
        }
        self.parts.progress.follow_policy(Some(Arc::clone(&policy)));
        self.shut_for(signal);
        let mut shutdown_run = self.prepare(policy, signal, carried);
        let noted = self.note_start(shutdown_run.journal.header.started_at);
        let mut epoch = signal.login.preparing.then_some(signal.login.epoch);
        let (end, run) = self.follow(&mut shutdown_run, signals, &mut epoch, stop).await;
        // If the run was complete when it was called off, it does not count as cancelled.
        let end = if run.stop == RunStop::Cancelled { end } else { RunEnd::Finished };
        self.finish(shutdown_run, run, end, noted, signals, epoch).await
    }

    /// Stops the pods and follows the signals at the same time. Sets `epoch` to that of the login manager's
    /// shutdown that the run belongs to.
    async fn follow(
        &self,
        shutdown_run: &mut ShutdownRun,
        signals: &mut ShutdownSignals,
        epoch: &mut Option<u64>,
        stop: &CancellationToken,
    ) -> (RunEnd, RunReport) {
        let running = CancellationToken::new();
        let (started, mut context) = (shutdown_run.started, shutdown_run.context.clone());
        let news = watch::Sender::new(context.clone());
        self.announce(&context, started);
        let run = self.end_pods(shutdown_run, news.subscribe(), &running);
        tokio::pin!(run);
        loop {
            tokio::select! {
                // Signals first, so that the run learns of changes before its next step.
                biased;
                () = stop.cancelled() => {
                    running.cancel();
                    return (RunEnd::Stopped, run.await);
                }
                () = signals.changed() => {}
                done = &mut run => return (RunEnd::Finished, done),
            }
            if signals.is_closed() {
                continue;
            }
            let signal = signals.current();
            let another = signal.login.preparing
                && !signal.is_unit_stop
                && epoch.is_some_and(|e| e != signal.login.epoch);
            if !signal.ends_the_node() || (another && !signal.is_noticed()) {
                running.cancel();
                self.follow_reasons(&signal);
                return (RunEnd::CalledOff, run.await);
            }
            self.follow_reasons(&signal);
            if signal.login.preparing {
                *epoch = Some(signal.login.epoch);
            }
            context = signal.limit(&context, started);
            if *news.borrow() != context {
                self.announce(&context, started);
                news.send_replace(context.clone());
            }
        }
    }

    /// Announces to the pods what is currently known about the shutdown.
    fn announce(&self, context: &RunContext, started: Instant) {
        let now = self.parts.clock.now();
        let request = context.request.as_ref();
        let notice = context.notice.as_ref();
        let ending = NodeEnding {
            reason: KillReason::Shutdown,
            node_action: Some(context.kind),
            deadline: started + context.budget.pods,
            requested_by: request.and_then(|request| RequestReport::of(request, now)),
            notice: notice.map(|notice| format!("{}: {}", notice.source, notice.text)),
        };
        self.parts.killer.announce(GateReason::Shutdown, ending);
    }

    /// Plans and runs. After a panic, requests all pods to stop at once, and adds a warning to the report.
    ///
    /// # Panics
    /// Panics if even that fails. Then nothing is released: the process must exit, and the next agent
    /// resumes the run.
    async fn end_pods(
        &self,
        shutdown_run: &mut ShutdownRun,
        context: watch::Receiver<RunContext>,
        cancel: &CancellationToken,
    ) -> RunReport {
        let (trigger, budget) = (shutdown_run.journal.header.trigger, shutdown_run.context.budget);
        let order = self.order(trigger, shutdown_run.started, budget);
        let work = async {
            self.parts.killer.lame_duck(GateReason::Shutdown, true);
            let carried = shutdown_run.carried.take();
            let (plan, first_group) = self.plan(shutdown_run, carried.as_ref());
            shutdown_run.journal.first_group = first_group;
            self.note_plan(shutdown_run, &plan, carried.as_ref());
            let (groups, work) = carried.map(|carried| (carried.groups, carried.work)).unzip();
            let params = RunParams {
                context: Some(context.clone()),
                journal: Some(&mut shutdown_run.journal),
                carried: groups,
                carried_work: work.unwrap_or_default(),
                first_group: Some(first_group),
            };
            carry_out(&self.parts.killer, plan, &order, params, cancel).await
        };
        let panic = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(run) => return run,
            Err(panic) => panic,
        };
        let why = panic_text(panic.as_ref());
        tracing::error!(why, "the shutdown run panicked; terminating all pods at once");
        let all = self.end_all(order, context, cancel);
        let Ok((group, known)) = AssertUnwindSafe(all).catch_unwind().await else {
            resume_unwind(panic)
        };
        let warning = format!(
            "the run panicked, which is a bug; all pods were asked to terminate at once: {why}"
        );
        shutdown_run.journal.header.warnings.push(warning);
        let stop = if cancel.is_cancelled() { RunStop::Cancelled } else { RunStop::Panicked };
        let work = shutdown_run.journal.work.clone();
        RunReport { groups: vec![group], work, stop, pods_unknown: !known }
    }

    pub(super) fn order(&self, trigger: Trigger, started: Instant, budget: Budget) -> RunOrder {
        RunOrder {
            reason: trigger.kill_reason(),
            status: Some(status_of_ended()),
            started,
            budget,
            recorder: Arc::clone(&self.parts.recorder),
            progress: self.parts.progress.clone(),
        }
    }

    /// Returns the plan, and when its first group may be requested to stop. A run that begins right after its signal has its
    /// whole time. Any other has what is left, or its first group would pay for the delay; that of an earlier agent's run
    /// keeps its time.
    fn plan(&self, shutdown_run: &ShutdownRun, carried: Option<&Carried>) -> (Plan, Duration) {
        let pods = self.parts.killer.running().into_pods();
        let ShutdownRun { policy, started, context, journal, .. } = shutdown_run;
        let (time, elapsed) = (context.budget.pods, started.elapsed());
        let (groups, work) =
            carried.map_or((&[][..], &[][..]), |carried| (&carried.groups, &carried.work));
        let late = match carried {
            // Rounding makes up for it.
            None if elapsed <= ROUNDING_TOLERANCE => Duration::ZERO,
            None => {
                tracing::warn!(late = ?elapsed, "the shutdown started earlier: using the remaining time");
                elapsed
            }
            Some(_) => elapsed,
        };
        let work = WorkReport::left(&self.parts.work, work, elapsed);
        let ordinary = GroupReport::priorities_of_ordinary_pods(groups);
        let rest = time.saturating_sub(late);
        let mut plan = plan_on(&pods, policy, &work, Some(rest), &ordinary).begun_after(late);
        if journal.header.trigger == Trigger::Notice {
            plan.extend_to(time);
        }
        let first_group = late + plan.endpoint_drain;
        (plan, carried.map_or(first_group, |carried| carried.first_group))
    }

    /// Says what the run sets out to do.
    fn note_plan(&self, shutdown_run: &mut ShutdownRun, plan: &Plan, carried: Option<&Carried>) {
        if let Some(Carried { groups, .. }) = carried {
            let after = shutdown_run.started.elapsed();
            let pods = still_to_end(plan, groups);
            return self.parts.recorder.record(&Event::ShutdownResumed { after, pods });
        }
        let (pods, budget, drain) = (plan.pod_count(), plan.deadline, plan.endpoint_drain);
        self.parts.recorder.record(&Event::ShutdownStarted { pods, budget });
        shutdown_run.journal.header.endpoint_drain = Some(drain).filter(|d| !d.is_zero());
    }

    fn prepare(
        &self,
        policy: Arc<Policy>,
        signal: &SignalState,
        carried: Option<RunRecord>,
    ) -> ShutdownRun {
        match carried {
            None => self.begin(policy, signal),
            Some(record) => self.resume(policy, signal, record),
        }
    }

    fn begin(&self, policy: Arc<Policy>, signal: &SignalState) -> ShutdownRun {
        let started = signal.since(Instant::now());
        let context = signal.context(&policy, started);
        let now = self.parts.clock.now();
        let trigger = match (signal.is_unit_stop, signal.login.preparing) {
            (true, _) => Trigger::UnitStop,
            (false, true) => self.parts.trigger,
            (false, false) => Trigger::Notice,
        };
        let header = ReportHeader {
            trigger,
            node_action: context.kind,
            boot_id: self.parts.boot_id.clone(),
            started_at: now.checked_sub(started.elapsed()).unwrap_or(now),
            budget: BudgetReport::new(context.budget, None),
            requested_by: None,
            notice: None,
            endpoint_drain: None,
            resumed: Vec::new(),
            warnings: (self.parts.objections)(),
        };
        let mut journal = self.journal(header, RunStart::new(started, &self.parts.boot_clock));
        journal.set_context(&context);
        ShutdownRun { policy, started, context, journal, carried: None }
    }

    fn resume(&self, policy: Arc<Policy>, signal: &SignalState, record: RunRecord) -> ShutdownRun {
        let started = self.start_of(&record);
        let late = started.elapsed();
        tracing::warn!(?late, "continuing the shutdown that an earlier agent began");
        let context = signal.limit(&record.context(), started);
        let header = record.header(late);
        let journal = self.journal(header, RunStart::of(&record, started));
        let mut journal = journal.after(record.sequence, record.phase);
        journal.set_context(&context);
        let first_group = Duration::from_millis(record.first_group_ms);
        let RunRecord { report: ShutdownReport { groups, work, .. }, .. } = record;
        journal.work.clone_from(&work);
        let carried = Some(Carried { groups, first_group, work });
        ShutdownRun { policy, started, context, journal, carried }
    }

    fn journal(&self, header: ReportHeader, start: RunStart) -> Journal {
        let clock = self.parts.clock.clone();
        Journal::new(header, clock, start, &self.parts.records)
    }

    /// Reports how the run went, and releases the node or lets it stay up.
    async fn finish(
        &self,
        shutdown_run: ShutdownRun,
        mut run: RunReport,
        end: RunEnd,
        noted: Noted,
        signals: &mut ShutdownSignals,
        epoch: Option<u64>,
    ) -> Transition {
        let ShutdownRun { started, context, mut journal, .. } = shutdown_run;
        let budget = journal.budget();
        let (spared_groups, left_pods) = (run.spared_groups(), run.left());
        // As the report says it.
        let unknown = left_pods == 0 && run.outcome() == Outcome::Incomplete;
        let until = self.report_deadline(started + budget.report_until(), budget);
        self.note_end(end, &mut journal, &run.groups, signals).await;
        let groups = run.groups.clone();
        let (not_told, until) = match end {
            RunEnd::Finished => {
                let context = signals.current().limit(&context, started);
                let at_most = self.release_deadline(&context, started, &run);
                let work =
                    self.work_before_release(&mut run, &mut journal, started, at_most, signals);
                (work.await, self.report_deadline(at_most, budget))
            }
            // The node stays up, or the next agent continues.
            RunEnd::CalledOff | RunEnd::Stopped => (Vec::new(), until),
        };
        let report = self.report_of(run, end, (&journal, started), &not_told);
        let keeping = self.keep(report.clone(), noted, until);
        // Once the report is stored, nothing in the record needs to survive a power cut.
        let last = (&*groups, until);
        match end {
            RunEnd::Stopped => {
                // If there is a record, the next agent reports the whole run from it.
                if !journal.is_kept() {
                    keeping.await;
                }
                Transition::Stop
            }
            RunEnd::CalledOff => {
                self.close_beside(keeping, &mut journal, last, signals, spared_groups).await;
                Transition::Done(Stage::Idle)
            }
            RunEnd::Finished => {
                let ended = |released| {
                    let (took, left) = (started.elapsed(), left_pods);
                    let ended = Event::ShutdownFinished { took, left, unknown, released };
                    self.record_end(&ended, spared_groups);
                };
                let epoch = self.release_beside(keeping, &mut journal, last, signals, epoch, ended);
                Transition::Done(Stage::done(epoch.await, journal.last(), Some(Box::new(report))))
            }
        }
    }

    /// Closes the record of a run that was called off when the report is stored by `keeping`, which says whether it is.
    async fn close_beside(
        &self,
        keeping: impl Future<Output = bool>,
        journal: &mut Journal,
        (groups, until): (&[GroupReport], Instant),
        signals: &ShutdownSignals,
        spared_groups: usize,
    ) {
        let lasting = !self.beside(signals, keeping).await;
        // Before the record is closed: what keeps the requests to terminate takes over those that go on.
        self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
        let last = journal.note_last(RunPhase::Cancelled, groups, until, lasting);
        self.beside(signals, last).await;
        self.parts.progress.phase(ProgressPhase::Cancelled);
    }

    /// Releases the lock while the report is stored by `keeping`, which says whether it is. Returns the epoch of the login
    /// manager's shutdown, if there is one.
    async fn release_beside(
        &self,
        keeping: impl Future<Output = bool>,
        journal: &mut Journal,
        (groups, until): (&[GroupReport], Instant),
        signals: &mut ShutdownSignals,
        epoch: Option<u64>,
        ended: impl FnOnce(bool),
    ) -> Option<u64> {
        let mut keeping = pin!(keeping);
        let wait = if journal.is_kept() { QUIET_DISK } else { Duration::MAX };
        let kept = timeout(wait, keeping.as_mut()).await.ok();
        let last = RunPhase::Released;
        // The record says that nothing is left to do only once the report is stored or lost: if this agent dies before, the
        // next one stores the report.
        if let Some(kept) = kept {
            journal.note_last(last, groups, until, !kept).await;
        }
        let release = self.release_own(signals, epoch).await;
        ended(release.of_lock);
        if kept.is_none() {
            let kept = keeping.await;
            journal.note_last(last, groups, until, !kept).await;
        }
        // The unit's stop waits for this, so that the report is on disk before the agent exits.
        if release.of_node {
            self.parts.progress.released(release.epoch);
        }
        release.epoch
    }

    /// Notes that no group is under way any more.
    async fn note_end(
        &self,
        end: RunEnd,
        journal: &mut Journal,
        groups: &[GroupReport],
        signals: &mut ShutdownSignals,
    ) {
        match end {
            RunEnd::Finished => {
                // An earlier agent may have said it already.
                if let Some(warning) = unawaited(&signals.current())
                    && !journal.header.warnings.contains(&warning)
                {
                    journal.header.warnings.push(warning);
                }
                journal.note(RunPhase::Reporting, groups).await;
                self.parts.progress.phase(ProgressPhase::Ended);
            }
            // Pods that come back do not wait for the disk.
            RunEnd::CalledOff if !signals.current().ends_the_node() => self.lift_all(),
            RunEnd::CalledOff => {}
            RunEnd::Stopped => journal.note_again(groups).await,
        }
    }

    fn report_of(
        &self,
        run: RunReport,
        end: RunEnd,
        (journal, started): (&Journal, Instant),
        not_told: &[PodRef],
    ) -> ShutdownReport {
        let ended = Ended { at: self.parts.clock.now(), took: started.elapsed() };
        let mut report = ShutdownReport::new(journal.header.clone(), run, ended);
        report.unsent_statuses = not_told.iter().map(ToString::to_string).collect();
        if end == RunEnd::Stopped {
            report.outcome = Outcome::Interrupted;
        }
        report
    }

    fn record_end(&self, ended: &Event, spared_groups: usize) {
        self.parts.recorder.record(ended);
        if !self.holds_admission() {
            // Called off just as it ended: the gate is open already, and only the event is missing.
            self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
        }
    }

    /// Releases the lock, unless the login manager has begun another shutdown in the meantime, whose lock
    /// must be kept.
    async fn release_own(&self, signals: &mut ShutdownSignals, epoch: Option<u64>) -> Release {
        let signal = signals.current();
        let ours = match epoch {
            Some(epoch) => signal.login.preparing && signal.login.epoch == epoch,
            None => signal.login.preparing,
        };
        if ours {
            self.parts.inhibitor.release().await;
        }
        Release {
            epoch: epoch.or(ours.then_some(signal.login.epoch)),
            of_lock: ours && !signal.is_unit_stop && signal.login.has_lock,
            of_node: ours || signal.is_noticed(),
        }
    }
}

/// The warning of a run for which the login manager did not wait. It grants no lock during a shutdown, so an agent without one
/// held none from the start.
fn unawaited(signal: &SignalState) -> Option<String> {
    let login = &signal.login;
    if !login.preparing || signal.is_unit_stop {
        return None;
    }
    why_unawaited(login).map(|why| format!("the shutdown did not wait for this agent{why}"))
}

/// The number of planned pods that an earlier agent has not recorded as terminated. A runtime lists what is left of the
/// others.
fn still_to_end(plan: &Plan, carried: &[GroupReport]) -> usize {
    let reports = carried.iter().flat_map(|group| &group.pods);
    let ended: HashSet<&str> =
        reports.filter(|pod| pod.end.is_over()).map(|pod| pod.uid.as_str()).collect();
    let planned = plan.groups.iter().flat_map(|group| &group.pods);
    planned.filter(|planned| !ended.contains(planned.pod.uid().as_str())).count()
}
