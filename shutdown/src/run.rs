//! Executes a plan: the pods of a group together, the groups one after another, one deadline.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    Event, KillError, KillReason, Pod, PodKiller, PodStopped, PodUid, Recorder, StatusOverride,
};

use crate::journal::Journal;
use crate::plan::{WorkPlace, ends_with_drivers, kept_for_drivers};
use crate::run_context::RunContext;
use crate::{
    Budget, GroupReport, Plan, PlannedPod, PodReport, ProgressSender, RunPhase, WorkReport,
};
use kills::{Asked, Wait};
use work::Work;

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

/// A group waits this much longer than its time, so that a pod that got SIGKILL on the last moment
/// is seen to be gone before the next group starts.
const REAPING: Duration = Duration::from_millis(100);

/// What [`run_plan`] needs beside the plan.
#[derive(Clone)]
pub struct RunOrder {
    /// Given to the pod workers.
    pub reason: KillReason,
    /// What becomes of the pods' status.
    pub status: Option<StatusOverride>,
    /// The signal: all times count from here.
    pub started: Instant,
    /// How long answers are awaited.
    pub budget: Budget,
    /// Takes an event when a group starts and ends.
    pub recorder: Arc<dyn Recorder>,
    /// Takes every step.
    pub progress: ProgressSender,
}

/// What [`run_plan`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    /// In the plan's order.
    pub groups: Vec<GroupReport>,
    /// What plug-ins did. What comes before the release is left to the caller.
    pub work: Vec<WorkReport>,
    /// Why the run is over.
    pub stop: RunStop,
    /// The runtime has not said what runs: there may have been more pods.
    pub pods_unknown: bool,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStop {
    /// Every pod ended, or the time was over.
    Finished,
    /// It was called off.
    Cancelled,
    /// It hit a bug; the pods were asked all at once, without an order.
    Panicked,
}

/// What the run of a shutdown has beside its order.
#[derive(Default)]
pub(crate) struct Driven<'a> {
    /// The time there is; it can only become less.
    pub(crate) context: Option<watch::Receiver<RunContext>>,
    /// Updated before any step takes effect.
    pub(crate) journal: Option<&'a mut Journal>,
    /// The progress of an earlier agent.
    pub(crate) carried: Option<Vec<GroupReport>>,
    /// What plug-ins did then.
    pub(crate) carried_work: Vec<WorkReport>,
    /// When the first pod is asked to end, counted from the signal; none takes the plan's endpoint
    /// drain.
    pub(crate) first_group: Option<Duration>,
}

/// Ends the pods of `plan`, group by group.
///
/// The first group waits for the plan's endpoint drain. All pods of a group are asked at once. The
/// next group starts when the last of them is gone and what was mounted for it is released, or when
/// the group's time ([`Group::latest_end`](crate::Group::latest_end)) is over; pods that are
/// late are waited for until the end, beside the others. A group's drivers are asked when its other
/// pods and what was mounted for them are gone. Between groups it is read again what runs:
/// a pod that was let in just before the gate shut ends with its group, or with the current one. While
/// it is not known what runs, more pods are waited for until the plan's deadline; the first that
/// become known are planned into what is left. A pod gets its own grace, or its group's time if it has none, but never past its group's
/// latest end. At the end what outlasts the machine is awaited, within the budget: mounts, and the
/// network of pods that have one of their own.
///
/// When `cancel` fires, no further pod is asked; pods already asked go on ending, unobserved.
/// Errors and panics of a kill are part of the report and stop nothing.
///
/// Dropping the future stops the run the hard way: groups not started are spared, and nothing is
/// reported.
pub async fn run_plan<K: PodKiller>(
    killer: &Arc<K>,
    plan: Plan,
    order: &RunOrder,
    cancel: &CancellationToken,
) -> RunReport {
    carry_out(killer, plan, order, Driven::default(), cancel).await
}

/// The same for a shutdown.
pub(crate) async fn carry_out<K: PodKiller>(
    killer: &Arc<K>,
    plan: Plan,
    order: &RunOrder,
    driven: Driven<'_>,
    cancel: &CancellationToken,
) -> RunReport {
    order.progress.begin(&plan, order.started);
    let mut run = Run::new(killer, plan, order, driven, cancel);
    let stop = match run.all_rounds().await {
        Ok(()) => RunStop::Finished,
        Err(Cancelled) => RunStop::Cancelled,
    };
    run.give_up_on_the_rest(stop);
    run.keep_work();
    RunReport { groups: run.groups, work: run.work.reports, stop, pods_unknown: !run.known }
}

/// Of a pod whose controller has another one in the report.
const MADE_ANEW: &str = "its controller made it while pods were being ended";

struct Cancelled;

/// Where a pod stands in the report.
#[derive(Clone, Copy)]
struct Place {
    group: usize,
    pod: usize,
}

struct Run<'a, K> {
    killer: &'a Arc<K>,
    order: &'a RunOrder,
    driven: Driven<'a>,
    cancel: &'a CancellationToken,
    /// As in the order, or less.
    budget: Budget,
    first_group: Duration,
    plan: Plan,
    groups: Vec<GroupReport>,
    /// Pods not asked yet by this agent, per group.
    waiting: Vec<Vec<(Place, Pod)>>,
    seen: HashSet<PodUid>,
    /// The controllers of those.
    controllers: HashSet<String>,
    /// Pods of an earlier agent's run that are not listed, as long as that means nothing.
    missing: HashMap<PodUid, Place>,
    /// What the runtime says of the end of those that are gone.
    unseen_ends: JoinSet<(Place, Option<PodStopped>)>,
    /// The runtime has said what runs.
    known: bool,
    more_known: watch::Receiver<u64>,
    /// The record says that the run waits for more pods.
    has_waited: bool,
    kills: JoinSet<Result<Arc<PodStopped>, KillError>>,
    asked: HashMap<Id, Asked>,
    /// Kills of earlier groups that were not answered in their group's time.
    overdue: HashSet<Id>,
    /// Waits for stopped pods to release their resources.
    releases: JoinSet<Vec<String>>,
    releasing: HashMap<Id, Place>,
    /// Those of the current round that the next group waits for.
    unmounting: HashSet<Id>,
    last_exit: Instant,
    work: Work,
    /// The end of the pods' time is so much sooner than the budget has it, for work after them.
    kept_after_pods: Duration,
    /// The drivers that have their group's next round.
    held_back: Option<HeldBack>,
    /// When an earlier agent's run was taken over.
    taken_over: Option<Duration>,
    /// When the next ends are persisted.
    note_at: Option<Instant>,
    noted: Instant,
}

/// Drivers that end after the other pods of their group.
struct HeldBack {
    group: usize,
    /// What of the group's time is theirs.
    kept: Duration,
}

// === impl Run ===

impl<'a, K: PodKiller> Run<'a, K> {
    fn new(
        killer: &'a Arc<K>,
        mut plan: Plan,
        order: &'a RunOrder,
        mut driven: Driven<'a>,
        cancel: &'a CancellationToken,
    ) -> Self {
        let pods = plan.take_pods();
        let work = WorkReport::of_all(std::mem::take(&mut driven.carried_work), &plan.work);
        let mut run = Self {
            killer,
            order,
            cancel,
            budget: order.budget,
            first_group: driven.first_group.unwrap_or(plan.endpoint_drain),
            driven,
            groups: Vec::new(),
            waiting: Vec::new(),
            seen: HashSet::with_capacity(pods.iter().map(Vec::len).sum()),
            controllers: HashSet::new(),
            missing: HashMap::new(),
            unseen_ends: JoinSet::new(),
            known: false,
            more_known: killer.more_known(),
            has_waited: false,
            kept_after_pods: plan.kept_after_pods(),
            held_back: None,
            plan,
            kills: JoinSet::new(),
            asked: HashMap::new(),
            overdue: HashSet::new(),
            releases: JoinSet::new(),
            releasing: HashMap::new(),
            unmounting: HashSet::new(),
            last_exit: order.started,
            work: Work::new(work, order.started),
            taken_over: None,
            note_at: None,
            noted: order.started,
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

    /// Reports and waiting pods have a place for each group of the plan.
    fn add_groups(&mut self) {
        for group in &self.plan.groups[self.groups.len()..] {
            self.groups.push(GroupReport::unstarted(group));
            self.waiting.push(Vec::new());
        }
    }

    async fn all_rounds(&mut self) -> Result<(), Cancelled> {
        self.look_again();
        if let Some(carried) = self.driven.carried.take() {
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
                if self.held_back.take().is_none_or(|drivers| drivers.group != group) {
                    self.hold_drivers_back(group, &mut batch);
                }
                self.before_drivers(group, &batch).await;
                self.round(group, batch).await?;
                self.look_again();
                turn = if self.held_back.is_some() { group } else { group + 1 };
            } else if self.known || self.elapsed() >= self.plan.deadline {
                break;
            } else {
                self.wait_for_more().await?;
            }
        }
        self.held_back = None;
        self.work(WorkPlace::Before(self.groups.len())).await?;
        self.overdue.clear();
        self.answers(Wait::End).await?;
        self.take_unseen_ends().await;
        self.work(WorkPlace::AfterPods).await
    }

    /// The next group to end, after the groups before `turn`. None if no pod is left to ask: pods
    /// that came while the last group was ending are asked for as long as there is time.
    fn next_group(&self, turn: usize) -> Option<usize> {
        let last = self.waiting.len().checked_sub(1)?;
        let lowest = self.waiting.iter().position(|waiting| !waiting.is_empty())?;
        let is_late = turn > last && self.elapsed() >= self.plan.deadline;
        (!is_late).then(|| lowest.max(turn).min(last))
    }

    /// Waits until the first group may be asked to end. Does not wait if there are no pods.
    async fn wait_as_lame_duck(&mut self) -> Result<(), Cancelled> {
        let no_pods = self.waiting.iter().all(Vec::is_empty);
        if no_pods || self.elapsed() >= self.first_group {
            return Ok(());
        }
        self.note(RunPhase::LameDuck).await;
        self.wait_until(|run| run.first_group).await
    }

    /// Waits until so long after the signal. The time is asked for again after each news of the shutdown.
    async fn wait_until(&mut self, time: impl Fn(&Self) -> Duration) -> Result<(), Cancelled> {
        loop {
            let time = time(self);
            if self.elapsed() >= time {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Cancelled),
                () = changed(&mut self.driven.context) => self.follow().await,
                () = sleep_until(self.order.started + time) => {}
            }
        }
    }

    /// Leaves the drivers of `batch` for a round of their own, and keeps time for it.
    fn hold_drivers_back(&mut self, group: usize, batch: &mut Vec<(Place, Pod)>) {
        let left = self.plan.groups[group].latest_end.saturating_sub(self.elapsed());
        let time = left.min(self.plan.groups[group].allowed);
        let kept = kept_for_drivers(batch.iter().map(|(_, pod)| pod), time);
        if !kept.is_zero() {
            let drivers = batch.extract_if(.., |(_, pod)| ends_with_drivers(pod));
            self.waiting[group].extend(drivers);
            self.held_back = Some(HeldBack { group, kept });
        }
    }

    /// When pods of `group` that were asked have to be gone: sooner than the group, where its drivers come
    /// after them.
    fn latest_end(&self, group: usize) -> Duration {
        let drivers = self.held_back.as_ref().filter(|drivers| drivers.group == group);
        let kept = drivers.map_or(Duration::ZERO, |drivers| drivers.kept);
        self.plan.groups[group].latest_end.saturating_sub(kept)
    }

    /// Ends `batch` as part of `group` and returns when it is gone or its time is over.
    async fn round(&mut self, group: usize, batch: Vec<(Place, Pod)>) -> Result<(), Cancelled> {
        if self.cancel.is_cancelled() {
            self.waiting[group].extend(batch);
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
        let (priority, name) = (self.plan.groups[group].priority, self.plan.groups[group].name());
        let pods = batch.len();
        self.order.recorder.record(&Event::GroupStarted {
            priority,
            name: name.clone(),
            pods,
            allowed,
        });

        let mut touched: Vec<usize> = batch.iter().map(|due| due.place.group).collect();
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

        let waited = self.answers(Wait::Group { index: group, begun }).await;

        let left = self.asked.len() - self.overdue.len();
        self.overdue.extend(self.asked.keys());
        self.unmounting.clear();
        for index in touched {
            if !self.waiting[index].is_empty() {
                continue;
            }
            self.groups[index].ended = Some(self.elapsed());
            self.order.progress.group(index, |group| group.finished = Some(Instant::now()));
        }
        let took = begun.elapsed();
        self.order.recorder.record(&Event::GroupEnded { priority, name, took, left });
        waited
    }

    /// The pods of all groups up to `group` that were not asked yet.
    fn due(&mut self, group: usize) -> Vec<(Place, Pod)> {
        self.waiting[..=group].iter_mut().flat_map(std::mem::take).collect()
    }

    fn enlist(&mut self, group: usize, pod: Pod, grace: Duration) {
        if !self.seen.insert(pod.uid().clone()) {
            return;
        }
        let has_begun = self.groups.iter().any(|group| group.started.is_some());
        let is_known = controller_of(&pod).is_some_and(|one| !self.controllers.insert(one));
        let reports = &mut self.groups[group].pods;
        let place = Place { group, pod: reports.len() };
        let earlier = self.killer.ending_by(pod.uid()).filter(|by| *by != KillReason::Shutdown);
        reports.push(PodReport {
            ending_by: earlier.map(|by| by.as_str().to_owned()),
            remark: (has_begun && is_known).then(|| MADE_ANEW.to_owned()),
            ..PodReport::spared(&pod, grace)
        });
        self.waiting[group].push((place, pod));
    }

    /// The time there is for the pods, and what comes behind it.
    fn budget_of_pods(&self) -> Budget {
        let pods = self.budget.pods.saturating_sub(self.kept_after_pods);
        Budget { pods, ..self.budget }
    }

    fn elapsed(&self) -> Duration {
        self.order.started.elapsed()
    }
}

/// The UID of what makes such pods anew.
fn controller_of(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Resolves when the time limit changes; never, once its sender is gone.
async fn changed(context: &mut Option<watch::Receiver<RunContext>>) {
    if let Some(news) = context {
        if news.changed().await.is_ok() {
            return;
        }
        *context = None;
    }
    std::future::pending::<()>().await;
}

/// Resolves when more is known; never, once the sender is gone.
async fn more(known: &mut watch::Receiver<u64>) {
    if known.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
