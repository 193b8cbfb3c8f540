//! One run, from the word to its end.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::critical::panic_text;
use winddown_shared::{Event, Inhibitor, PodKiller, PodLabel, StatusOverride};

use super::ears::{Ears, Said};
use super::keeping::Noted;
use super::{Left, ShutdownController, Stage, Step};
use crate::journal::Journal;
use crate::report::{Ended, ReportHeader};
use crate::run::{Driven, carry_out};
use crate::standing::Standing;
use crate::{
    BudgetReport, GroupReport, Outcome, Plan, Policy, ProgressPhase, RunOrder, RunPhase, RunRecord,
    RunReport, RunStop, ShutdownReport, Trigger, plan,
};

/// What the kubelet writes into a pod's status.
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// What a pod's status says after a shutdown has ended it.
pub(crate) fn status_of_ended() -> StatusOverride {
    StatusOverride {
        reason: "Terminated".into(),
        message: MESSAGE.into(),
        disruption_message: Some(MESSAGE.into()),
    }
}

/// A run that begins this long after the signal divides what is left instead of starting with
/// groups whose time is already over.
const LATE: Duration = Duration::from_secs(1);

/// What is kept for the report of the time in which last statuses are told.
const FOR_REPORT: Duration = Duration::from_millis(300);

/// What a run works with, beside the controller's parts.
struct Conduct {
    policy: Arc<Policy>,
    started: Instant,
    standing: Standing,
    journal: Journal,
    carried: Option<Carried>,
}

/// What of an earlier agent's run is done already.
struct Carried {
    groups: Vec<GroupReport>,
    first_group: Duration,
}

impl<K: PodKiller, I: Inhibitor> ShutdownController<K, I> {
    /// Ends the pods because of what was `said`, or goes on doing so.
    pub(super) async fn shut_down(
        &self,
        said: &Said,
        ears: &mut Ears,
        carried: Option<RunRecord>,
        stop: &CancellationToken,
    ) -> Step {
        let policy = Arc::clone(&self.parts.policy.borrow());
        if !policy.is_enabled() {
            return self.let_go(said, None, None).await;
        }
        self.shut_for(said);
        let mut conduct = self.conduct(policy, said, carried);
        let noted = self.note_start(conduct.journal.header.started_at);
        let mut epoch = said.login.preparing.then_some(said.login.epoch);
        let (left, run) = self.follow(&mut conduct, ears, &mut epoch, stop).await;
        // A run that was over at the moment it was called off is not a cancelled one.
        let left = if run.stop == RunStop::Cancelled { left } else { Left::Finished };
        self.finish(conduct, run, left, noted, ears, epoch).await
    }

    /// Runs, and listens meanwhile. `epoch` becomes the login manager's shutdown that the run is
    /// part of.
    async fn follow(
        &self,
        conduct: &mut Conduct,
        ears: &mut Ears,
        epoch: &mut Option<u64>,
        stop: &CancellationToken,
    ) -> (Left, RunReport) {
        let running = CancellationToken::new();
        let (started, mut standing) = (conduct.started, conduct.standing.clone());
        let news = watch::Sender::new(standing.clone());
        let run = self.end_pods(conduct, news.subscribe(), &running);
        tokio::pin!(run);
        loop {
            tokio::select! {
                // What was said is known before the run takes its next step.
                biased;
                () = stop.cancelled() => {
                    running.cancel();
                    return (Left::Stopped, run.await);
                }
                () = ears.changed() => {}
                done = &mut run => return (Left::Finished, done),
            }
            if ears.is_deaf() {
                continue;
            }
            let said = ears.hear();
            let another = said.login.preparing && epoch.is_some_and(|e| e != said.login.epoch);
            if !said.ends_the_node() || (another && said.notice.is_none()) {
                running.cancel();
                self.follow_reasons(&said);
                return (Left::CalledOff, run.await);
            }
            self.follow_reasons(&said);
            if said.login.preparing {
                *epoch = Some(said.login.epoch);
            }
            standing = said.limit(&standing, started);
            news.send_if_modified(|now| {
                let changed = *now != standing;
                now.clone_from(&standing);
                changed
            });
        }
    }

    /// Plans and runs. After a panic in here all pods are asked at once, and the report says so.
    ///
    /// # Panics
    /// If that is not possible either. Then nothing is let go: the process is to end, and the next
    /// agent goes on.
    async fn end_pods(
        &self,
        conduct: &mut Conduct,
        standing: watch::Receiver<Standing>,
        cancel: &CancellationToken,
    ) -> RunReport {
        let work = async {
            self.parts.killer.lame_duck(self.own_reason(), true);
            let order = self.order(conduct);
            let carried = conduct.carried.take();
            let (plan, first_group) = self.plan(conduct, carried.as_ref());
            let groups = carried.map(|carried| carried.groups);
            let (pods, budget) = (plan.pod_count(), plan.deadline);
            if groups.is_some() {
                let after = conduct.started.elapsed();
                self.parts.recorder.record(&Event::ShutdownResumed { after, pods });
            } else {
                self.parts.recorder.record(&Event::ShutdownStarted { pods, budget });
                let drain = plan.endpoint_drain;
                conduct.journal.header.endpoint_drain = Some(drain).filter(|d| !d.is_zero());
            }
            let driven = Driven {
                standing: Some(standing.clone()),
                journal: Some(&mut conduct.journal),
                carried: groups,
                first_group: Some(first_group),
            };
            carry_out(&self.parts.killer, plan, &order, driven, cancel).await
        };
        let panic = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(run) => return run,
            Err(panic) => panic,
        };
        let why = panic_text(panic.as_ref());
        tracing::error!(why, "the shutdown run panicked; all pods are asked to end at once");
        let all = self.end_all(self.order(conduct), standing, cancel);
        let Ok((group, known)) = AssertUnwindSafe(all).catch_unwind().await else {
            resume_unwind(panic)
        };
        let warning =
            format!("the run panicked, which is a bug; all pods were asked to end at once: {why}");
        conduct.journal.header.warnings.push(warning);
        let stop = if cancel.is_cancelled() { RunStop::Cancelled } else { RunStop::Panicked };
        RunReport { groups: vec![group], stop, pods_unknown: !known }
    }

    fn order(&self, conduct: &Conduct) -> RunOrder {
        RunOrder {
            reason: conduct.journal.header.trigger.kill_reason(),
            status: Some(status_of_ended()),
            started: conduct.started,
            budget: conduct.standing.budget,
            recorder: Arc::clone(&self.parts.recorder),
            progress: self.parts.progress.clone(),
        }
    }

    /// The plan, and when its first group may be asked.
    fn plan(&self, conduct: &Conduct, carried: Option<&Carried>) -> (Plan, Duration) {
        let pods = self.parts.killer.running().into_pods();
        let budget = conduct.standing.budget;
        let late = conduct.started.elapsed();
        let (mut plan, first_group) = if late < LATE && carried.is_none() {
            let plan = plan(&pods, &conduct.policy, Some(budget.pods));
            let first_group = plan.endpoint_drain;
            (plan, first_group)
        } else {
            if carried.is_none() {
                tracing::warn!(?late, "the shutdown began earlier: the rest of the time is used");
            }
            let rest = budget.pods.saturating_sub(late);
            let plan = plan(&pods, &conduct.policy, Some(rest)).begun_after(late);
            let first_group = late + plan.endpoint_drain;
            (plan, carried.map_or(first_group, |carried| carried.first_group))
        };
        if conduct.journal.header.trigger == Trigger::Notice {
            plan.extend_to(budget.pods);
        }
        (plan, first_group)
    }

    fn conduct(&self, policy: Arc<Policy>, said: &Said, carried: Option<RunRecord>) -> Conduct {
        match carried {
            None => self.begin(policy, said),
            Some(record) => self.go_on(policy, said, record),
        }
    }

    fn begin(&self, policy: Arc<Policy>, said: &Said) -> Conduct {
        let started = said.since(Instant::now());
        let standing = said.standing(&policy, started);
        let now = self.parts.clock.now();
        let trigger = if said.login.preparing { self.parts.trigger } else { Trigger::Notice };
        let header = ReportHeader {
            trigger,
            node_action: standing.kind,
            boot_id: self.parts.boot_id.clone(),
            started_at: now.checked_sub(started.elapsed()).unwrap_or(now),
            budget: BudgetReport::new(standing.budget, None),
            notice: None,
            endpoint_drain: None,
            resumed: Vec::new(),
            warnings: Vec::new(),
        };
        let started_boot = self.parts.boot_clock.now().saturating_sub(started.elapsed());
        let mut journal = self.journal(header, started, started_boot);
        journal.stand(&standing);
        Conduct { policy, started, standing, journal, carried: None }
    }

    fn go_on(&self, policy: Arc<Policy>, said: &Said, record: RunRecord) -> Conduct {
        let started = self.start_of(&record);
        let late = started.elapsed();
        tracing::warn!(?late, "going on with the shutdown that an earlier agent began");
        let standing = said.limit(&record.standing(), started);
        let header = record.header(late);
        let started_boot = Duration::from_millis(record.started_boot_ms);
        let mut journal =
            self.journal(header, started, started_boot).after(record.sequence, record.phase);
        journal.stand(&standing);
        let first_group = Duration::from_millis(record.first_group_ms);
        let carried = Some(Carried { groups: record.report.groups, first_group });
        Conduct { policy, started, standing, journal, carried }
    }

    fn journal(&self, header: ReportHeader, started: Instant, started_boot: Duration) -> Journal {
        let clock = self.parts.clock.clone();
        Journal::new(header, clock, (started, started_boot), &self.parts.records)
    }

    /// Says how it went, and lets the node go or stay.
    async fn finish(
        &self,
        conduct: Conduct,
        run: RunReport,
        left: Left,
        noted: Noted,
        ears: &mut Ears,
        epoch: Option<u64>,
    ) -> Step {
        let Conduct { started, standing, mut journal, .. } = conduct;
        let budget = journal.budget();
        let (spared_groups, left_pods) = (run.spared_groups(), run.left());
        let until = self.report_until(started, budget);
        match left {
            Left::Finished => journal.note(RunPhase::Reporting, &run.groups).await,
            // A pod that comes back waits for no disk.
            Left::CalledOff if !ears.hear().ends_the_node() => self.lift_all(),
            Left::CalledOff => {}
            Left::Stopped => journal.note_again(&run.groups).await,
        }
        self.parts.progress.phase(ProgressPhase::Ended);
        let groups = run.groups.clone();
        let (mut kept, mut last_report) = (false, None);
        let (not_told, until) = match left {
            Left::Finished => {
                let standing = ears.hear().limit(&standing, started);
                let at_most = self.tell_until(&standing, started);
                let not_told = self.tell(is_clean(&run), at_most, ears).await;
                (not_told, self.report_after_telling(at_most, budget))
            }
            // The node stays up, or the next agent goes on.
            Left::CalledOff | Left::Stopped => (Vec::new(), until),
        };
        // What the next agent finds in the record is reported once, and whole, by that one.
        if left != Left::Stopped || !journal.is_kept() {
            let ended = Ended { at: self.parts.clock.now(), took: started.elapsed() };
            let mut report = ShutdownReport::new(journal.header.clone(), run, ended);
            report.statuses_not_told = not_told.iter().map(ToString::to_string).collect();
            if left == Left::Stopped {
                report.outcome = Outcome::Interrupted;
            }
            last_report = Some(Box::new(report.clone()));
            kept = match left {
                Left::CalledOff => self.beside(ears, self.keep(report, noted, until)).await,
                _ => self.keep(report, noted, until).await,
            };
        }
        // After the report the record has nothing to say that a power cut must not take.
        let lasting = !kept;
        match left {
            Left::Stopped => Step::Stop,
            Left::CalledOff => {
                let last = journal.note_last(RunPhase::Cancelled, &groups, until, lasting);
                self.beside(ears, last).await;
                self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
                self.parts.progress.phase(ProgressPhase::Cancelled);
                Step::Done(Stage::Idle)
            }
            Left::Finished => {
                journal.note_last(RunPhase::Released, &groups, until, lasting).await;
                let (epoch, ours) = self.release_own(ears, epoch).await;
                let took = started.elapsed();
                let released = ours && self.parts.trigger != Trigger::UnitStop;
                let ended = Event::ShutdownEnded { took, left: left_pods, released };
                self.parts.recorder.record(&ended);
                if !self.holds_admission() {
                    // Called off the moment it ended: the gate was opened then, and it is told here.
                    self.parts.recorder.record(&Event::ShutdownCancelled { spared_groups });
                }
                Step::Done(Stage::Done { epoch, record: journal.last(), report: last_report })
            }
        }
    }

    /// Waits until those have been told who have to be, and names the pods that could not be told of.
    /// What is left of the time after that is the report's. A node that stays up is not waited with.
    async fn tell(&self, clean: bool, until: Instant, ears: &Ears) -> Vec<PodLabel> {
        let Some(last_words) = &self.parts.last_words else { return Vec::new() };
        let whole = until.saturating_duration_since(Instant::now());
        let told_by = until - FOR_REPORT.min(whole / 4);
        let telling = AssertUnwindSafe(last_words.tell(clean, told_by)).catch_unwind();
        // It ends by itself. If it does not, half of what is the report's stays with the report.
        let given_up = told_by + until.saturating_duration_since(told_by) / 2;
        let told = tokio::select! {
            biased;
            told = tokio::time::timeout_at(given_up, telling) => told,
            // What is not told yet is told beside the pods that come back.
            () = ears.clone().called_off() => return Vec::new(),
        };
        match told {
            Ok(Ok(not_told)) => not_told,
            Ok(Err(_)) | Err(_) => {
                tracing::error!("it is not known whether the last statuses of the pods were told");
                Vec::new()
            }
        }
    }

    /// Gives the lock back, unless the login manager has begun another shutdown meanwhile: that
    /// one's lock is not ours to give. Answers with the shutdown that was let go, and whether a lock
    /// was given back for it.
    async fn release_own(&self, ears: &mut Ears, epoch: Option<u64>) -> (Option<u64>, bool) {
        let said = ears.hear();
        let ours = match epoch {
            Some(epoch) => said.login.preparing && said.login.epoch == epoch,
            None => said.login.preparing,
        };
        if ours {
            self.parts.inhibitor.release().await;
        }
        if ours || said.notice.is_some() {
            self.parts.progress.phase(ProgressPhase::Released);
        }
        (epoch.or(ours.then_some(said.login.epoch)), ours)
    }
}

/// Whether every pod there was ended and none left anything mounted.
fn is_clean(run: &RunReport) -> bool {
    let mut pods = run.groups.iter().flat_map(|group| &group.pods);
    let is_over = run.stop == RunStop::Finished && !run.pods_unknown;
    is_over && run.left() == 0 && pods.all(|pod| pod.mounts.is_empty())
}
