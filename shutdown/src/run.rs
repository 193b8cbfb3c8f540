//! Executes a plan: stops the groups one after another, and the pods of a group together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{Event, KillReason, Pod, Recorder, StatusOverride};

use crate::EndingPods;
use crate::journal::Journal;
use crate::plan::{WorkPlace, ends_with_drivers, kept_for_drivers};
use crate::run_context::RunContext;
use crate::{
    Budget, GroupReport, Plan, PlannedPod, PodEnd, PodReport, ProgressSender, RunPhase, WorkReport,
};
use discovery::Discovery;
use kills::{Kills, Wait};
pub(crate) use outcome::outcome_of;
use persist::RecordNotes;
use volumes::Releases;
use work::PluginWork;

mod discovery;
mod in_place;
mod kills;
mod outcome;
mod persist;
mod resume;
mod shorten;
#[cfg(test)]
mod tests;
mod volumes;
mod work;

/// How much longer a group waits than its time, so that a pod that gets SIGKILL at the last moment is seen
/// to exit before the next group starts.
const REAP_TIME: Duration = Duration::from_millis(100);

/// The parameters of [`run_plan`], in addition to the plan.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunOrder {
    /// The reason given to the pod workers.
    pub reason: KillReason,
    /// The status override for the pods.
    pub status: Option<StatusOverride>,
    /// When the signal arrived. All times count from here.
    pub started: Instant,
    /// The time budget, which limits how long results are awaited.
    pub budget: Budget,
    /// Receives an event when a group starts and when it ends.
    pub recorder: Arc<dyn Recorder>,
    /// Receives the progress at every step.
    pub progress: ProgressSender,
}

impl RunOrder {
    /// A run that starts now, with no status of its own for the pods, and that nothing follows. Set other fields as needed.
    #[must_use]
    pub fn new(reason: KillReason, budget: Budget) -> Self {
        let (started, progress) = (Instant::now(), ProgressSender::new());
        Self { reason, status: None, started, budget, recorder: Arc::new(()), progress }
    }
}

/// The result of [`run_plan`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunReport {
    /// The groups, in the plan's order.
    pub groups: Vec<GroupReport>,
    /// The work of plug-ins. Work before the release is left to the caller.
    pub work: Vec<WorkReport>,
    /// Why the run is over.
    pub stop: RunStop,
    /// Whether the runtime has not listed its pods, so that there may have been more.
    pub pods_unknown: bool,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunStop {
    /// Every pod stopped, or the time was over.
    Finished,
    /// The run was called off.
    Cancelled,
    /// The run hit a bug. All pods were requested to stop at once, in no order.
    Panicked,
}

/// The parameters of a shutdown's run, in addition to its order.
#[derive(Default)]
pub(crate) struct RunParams<'a> {
    /// The current context. The time that it leaves can only decrease.
    pub(crate) context: Option<watch::Receiver<RunContext>>,
    /// The journal, which is updated before any step takes effect.
    pub(crate) journal: Option<&'a mut Journal>,
    /// The progress of an earlier agent.
    pub(crate) carried: Option<Vec<GroupReport>>,
    /// The work of plug-ins under that agent.
    pub(crate) carried_work: Vec<WorkReport>,
    /// When the first pod is requested to stop, counted from the signal; by default after the plan's
    /// endpoint drain.
    pub(crate) first_group: Option<Duration>,
}

/// Stops the pods of `plan`, group by group.
///
/// The first group waits for the plan's endpoint drain. All pods of a group are requested to stop at once,
/// except its drivers, which follow when the other pods have stopped and their volumes are unmounted. The
/// next group starts when the last pod has stopped, or when the group's time
/// ([`Group::latest_end`](crate::Group::latest_end)) is over. Unlike with a kubelet, it does not wait for the
/// volumes of the group before: only drivers do, in whichever group they are. A pod that other pods' volumes
/// need, and that is not recognised as a driver ([`Role`](crate::Role)), gets that wait by the label
/// [`ROLE_LABEL`](crate::ROLE_LABEL) with the value `driver`. Late pods are awaited until the end, along
/// with the others. The running pods are listed again between groups: a pod that was admitted just before
/// the gate closed stops with its group, or with the current one. While the runtime has not listed its
/// pods, the run waits for them until the plan's deadline; the first that become known are planned into
/// the time left. A pod gets its own grace period, or its group's time if it has none, but never past its
/// group's latest end. At the end, the run waits, within the budget, for everything that outlasts the
/// machine: mounts, and the network of pods that have their own.
///
/// When `cancel` is cancelled, no further pod is requested to stop; pods that already were continue to stop,
/// unobserved. Errors and panics of a kill become part of the report and do not stop the run.
///
/// Dropping the future aborts the run: groups that have not started are spared, and nothing is reported.
pub async fn run_plan<K: EndingPods>(
    killer: &Arc<K>,
    plan: Plan,
    order: &RunOrder,
    cancel: &CancellationToken,
) -> RunReport {
    carry_out(killer, plan, order, RunParams::default(), cancel).await
}

/// Like [`run_plan`], for a shutdown.
pub(crate) async fn carry_out<K: EndingPods>(
    killer: &Arc<K>,
    plan: Plan,
    order: &RunOrder,
    params: RunParams<'_>,
    cancel: &CancellationToken,
) -> RunReport {
    order.progress.begin(&plan, order.started);
    let mut run = ShutdownRun::new(killer, plan, order, params, cancel);
    let stop = match run.all_rounds().await {
        Ok(()) => RunStop::Finished,
        Err(Cancelled) => RunStop::Cancelled,
    };
    run.remark_afterwards();
    run.give_up_on_the_rest(stop);
    run.keep_work();
    RunReport {
        groups: run.groups,
        work: run.work.reports,
        stop,
        pods_unknown: !run.discovery.known,
    }
}

/// The remark on a pod whose controller has another one in the report.
const MADE_ANEW: &str = "its controller created it during the shutdown";

struct Cancelled;

/// A pod's position in the report.
#[derive(Clone, Copy)]
struct ReportPosition {
    group: usize,
    pod: usize,
}

struct ShutdownRun<'a, K> {
    killer: &'a Arc<K>,
    order: &'a RunOrder,
    params: RunParams<'a>,
    cancel: &'a CancellationToken,
    /// The order's budget, or less if the run was shortened.
    budget: Budget,
    first_group: Duration,
    plan: Plan,
    groups: Vec<GroupReport>,
    unasked: Unasked,
    discovery: Discovery,
    kills: Kills,
    releases: Releases,
    work: PluginWork,
    /// When an earlier agent's run was taken over, counted from the signal.
    taken_over: Option<Duration>,
    notes: RecordNotes,
}

/// The pods that this agent has not requested to stop yet.
#[derive(Default)]
struct Unasked {
    /// Those that stop with their group, per group.
    waiting: Vec<Vec<(ReportPosition, Pod)>>,
    /// Those that are spared because they survive a soft reboot, until the last group is over.
    survivors: Vec<(ReportPosition, Pod)>,
    /// The drivers whose turn is the next round of their group.
    held_back: Option<HeldBack>,
}

/// Drivers that stop after the other pods of their group.
struct HeldBack {
    group: usize,
    /// The part of the group's time that is theirs.
    kept: Duration,
}

// === impl ShutdownRun ===

impl<'a, K: EndingPods> ShutdownRun<'a, K> {
    fn new(
        killer: &'a Arc<K>,
        mut plan: Plan,
        order: &'a RunOrder,
        mut params: RunParams<'a>,
        cancel: &'a CancellationToken,
    ) -> Self {
        let pods = plan.take_pods();
        let work = WorkReport::of_all(std::mem::take(&mut params.carried_work), &plan.work);
        let mut run = Self {
            killer,
            order,
            cancel,
            budget: order.budget,
            first_group: params.first_group.unwrap_or(plan.endpoint_drain),
            params,
            groups: Vec::new(),
            unasked: Unasked::default(),
            discovery: Discovery::new(killer.more_known(), pods.iter().map(Vec::len).sum()),
            kills: Kills::new(order.started),
            releases: Releases::default(),
            work: PluginWork::new(work, order.started, plan.kept_after_pods()),
            plan,
            taken_over: None,
            notes: RecordNotes::new(order.started),
        };
        run.enlist_all(pods);
        run
    }

    fn enlist_all(&mut self, pods: Vec<Vec<PlannedPod>>) {
        self.add_groups();
        for (group, pods) in pods.into_iter().enumerate() {
            for planned in pods {
                self.enlist(group, planned.pod, planned.grace);
            }
        }
    }

    /// Adds reports and lists of waiting pods for new groups of the plan.
    fn add_groups(&mut self) {
        for group in &self.plan.groups[self.groups.len()..] {
            self.groups.push(GroupReport::unstarted(group));
            self.unasked.waiting.push(Vec::new());
        }
    }

    async fn all_rounds(&mut self) -> Result<(), Cancelled> {
        self.look_again();
        if let Some(carried) = self.params.carried.take() {
            self.take_over(carried);
        }
        self.wait_for_kind().await?;
        self.spare_survivors();
        self.work(WorkPlace::Before(0)).await?;
        let mut turn = 0;
        loop {
            self.wait_as_lame_duck().await?;
            if let Some(group) = self.next_group(turn) {
                self.work(WorkPlace::Before(group)).await?;
                let mut batch = self.due(group);
                if self.unasked.held_back.take().is_none_or(|drivers| drivers.group != group) {
                    self.hold_drivers_back(group, &mut batch);
                }
                self.before_drivers(group, &batch).await;
                self.round(group, batch).await?;
                turn = if self.unasked.held_back.is_some() { group } else { group + 1 };
            } else if self.discovery.known || self.elapsed() >= self.plan.deadline {
                break;
            } else {
                self.wait_for_more().await?;
            }
            self.look_again();
            self.spare_survivors();
        }
        self.unasked.held_back = None;
        self.unasked.survivors.clear();
        self.work(WorkPlace::Before(self.groups.len())).await?;
        self.answers_of_all().await?;
        self.take_unseen_ends().await;
        self.work(WorkPlace::AfterPods).await
    }

    /// Returns the next group to stop: the first at `turn` or later that has pods, with which those of earlier groups
    /// stop that appeared meanwhile, or else the last one for these. None if there are no pods left, or if the remaining
    /// ones appeared while the last group was stopping and there is no time left for them.
    fn next_group(&self, turn: usize) -> Option<usize> {
        let waiting = &self.unasked.waiting;
        let has_pods = |group: &usize| !waiting[*group].is_empty();
        let last = waiting.len().checked_sub(1)?;
        let is_late = turn > last && self.elapsed() >= self.plan.deadline;
        if is_late || !(0..=last).any(|group| has_pods(&group)) {
            return None;
        }
        Some((turn..last).find(has_pods).unwrap_or(last))
    }

    /// Waits until the first group may be requested to stop. Does not wait if there are no pods.
    async fn wait_as_lame_duck(&mut self) -> Result<(), Cancelled> {
        let no_pods = self.unasked.waiting.iter().all(Vec::is_empty);
        if no_pods || self.elapsed() >= self.first_group {
            return Ok(());
        }
        self.note(RunPhase::LameDuck).await;
        self.wait_until(|run| run.first_group).await
    }

    /// Waits until `time` after the signal. Evaluates `time` again after each change of the context.
    async fn wait_until(&mut self, time: impl Fn(&Self) -> Duration) -> Result<(), Cancelled> {
        loop {
            let time = time(self);
            if self.elapsed() >= time {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Cancelled),
                () = changed(self.params.context.as_mut()) => self.follow().await,
                () = sleep_until(self.order.started + time) => {}
            }
        }
    }

    /// Moves the drivers of `batch` to a round of their own, and keeps time for it.
    fn hold_drivers_back(&mut self, group: usize, batch: &mut Vec<(ReportPosition, Pod)>) {
        let left = self.plan.groups[group].latest_end.saturating_sub(self.elapsed());
        let time = left.min(self.plan.groups[group].allowed);
        let kept = kept_for_drivers(batch.iter().map(|(_, pod)| pod), time);
        if !kept.is_zero() {
            let drivers = batch.extract_if(.., |(_, pod)| ends_with_drivers(pod));
            self.unasked.waiting[group].extend(drivers);
            self.unasked.held_back = Some(HeldBack { group, kept });
        }
    }

    /// When the current pods of `group` have to be gone: sooner than the group if its drivers come after them.
    fn latest_end(&self, group: usize) -> Duration {
        let drivers = self.unasked.held_back.as_ref().filter(|drivers| drivers.group == group);
        let kept = drivers.map_or(Duration::ZERO, |drivers| drivers.kept);
        self.plan.groups[group].latest_end.saturating_sub(kept)
    }

    /// Stops `batch` as part of `group`. Returns when it has stopped or its time is over.
    async fn round(
        &mut self,
        group: usize,
        batch: Vec<(ReportPosition, Pod)>,
    ) -> Result<(), Cancelled> {
        if self.cancel.is_cancelled() {
            self.unasked.waiting[group].extend(batch);
            return Err(Cancelled);
        }
        let latest_end = self.latest_end(group);
        let batch = self.schedule(group, batch, latest_end);
        self.note(RunPhase::Ending).await;
        if self.cancel.is_cancelled() {
            self.take_back(batch);
            return Err(Cancelled);
        }
        let begun = Instant::now();
        let allowed = latest_end.saturating_sub(self.elapsed());
        let (reason, name) = (self.order.reason, self.plan.groups[group].name());
        let priority = self.plan.groups[group].priority;
        let pods = batch.len();
        self.order.recorder.record(&Event::GroupStarted {
            reason,
            priority,
            name: name.clone(),
            pods,
            allowed,
        });

        let places: Vec<ReportPosition> = batch.iter().map(|due| due.place).collect();
        let mut touched: Vec<usize> = places.iter().map(|place| place.group).collect();
        touched.push(group);
        touched.sort_unstable();
        touched.dedup();
        for due in batch {
            self.ask(due, latest_end);
        }
        for index in &touched {
            self.order.progress.group(*index, |group| {
                group.started.get_or_insert(begun);
            });
        }

        let reports = || places.iter().map(|place| &self.groups[place.group].pods[place.pod]);
        let killed = reports().filter_map(|pod| pod.kill_at(Duration::MAX)).max();
        let wait = Wait::Group { index: group, begun, killed: killed.unwrap_or_default() };
        let waited = self.answers(wait).await;

        let left = self.left_of(&places);
        if waited.is_err() && left > 0 {
            // Their grace goes on: neither has the group finished, nor is anything late.
            return waited;
        }
        self.kills.overdue.extend(self.kills.asked.keys());
        self.note_finished(&touched);
        let took = begun.elapsed();
        self.order.recorder.record(&Event::GroupFinished { reason, priority, name, took, left });
        waited
    }

    /// How many of the pods at these places still run. One whose kill failed or was refused is not awaited, but does.
    fn left_of(&self, places: &[ReportPosition]) -> usize {
        let reports = places.iter().map(|place| &self.groups[place.group].pods[place.pod]);
        let failed = reports.filter(|pod| pod.end == PodEnd::StillRunning).count();
        self.kills.asked.len() - self.kills.overdue.len() + failed
    }

    /// Notes of these groups that they are over, unless more of their pods have come meanwhile.
    fn note_finished(&mut self, groups: &[usize]) {
        for &index in groups {
            if self.unasked.waiting[index].is_empty() {
                self.groups[index].ended = Some(self.elapsed());
                self.order.progress.group(index, |group| group.finished = Some(Instant::now()));
            }
        }
    }

    /// Takes the pods of all groups up to `group` that have not been requested to stop yet.
    fn due(&mut self, group: usize) -> Vec<(ReportPosition, Pod)> {
        self.unasked.waiting[..=group].iter_mut().flat_map(std::mem::take).collect()
    }

    fn enlist(&mut self, group: usize, pod: Pod, grace: Duration) {
        if !self.discovery.seen.insert(pod.uid().clone()) {
            return;
        }
        let has_begun = self.groups.iter().any(|group| group.started.is_some());
        let is_known =
            controller_of(&pod).is_some_and(|one| !self.discovery.controllers.insert(one));
        let reports = &mut self.groups[group].pods;
        let place = ReportPosition { group, pod: reports.len() };
        let earlier = self.killer.prior_reason(pod.uid()).filter(|by| *by != self.order.reason);
        reports.push(PodReport {
            prior_reason: earlier.map(|by| by.as_str().to_owned()),
            remark: (has_begun && is_known).then(|| MADE_ANEW.to_owned()),
            ..PodReport::spared(&pod, grace)
        });
        self.unasked.waiting[group].push((place, pod));
    }

    /// The budget, without the time that is kept for work after the pods.
    fn budget_of_pods(&self) -> Budget {
        let pods = self.budget.pods.saturating_sub(self.work.kept_after_pods);
        Budget { pods, ..self.budget }
    }

    fn elapsed(&self) -> Duration {
        self.order.started.elapsed()
    }
}

/// Returns the UID of the pod's controller.
fn controller_of(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Resolves at the next change; never without a receiver, or once the sender is gone.
async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    let is_news = match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !is_news {
        std::future::pending::<()>().await;
    }
}
