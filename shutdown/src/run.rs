//! Carrying out a plan: pods of a group together, groups one after the other, one deadline.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    Event, KillError, KillReason, KillRequest, Pod, PodKiller, PodStopped, PodUid, Recorder,
    StatusOverride,
};

use crate::budget::whole_seconds;
use crate::{Budget, GroupReport, Plan, PodEnd, PodReport, ProgressSender};
use outcome::Failure;

mod outcome;
#[cfg(test)]
mod tests;

/// A group waits this much longer than its time, so that a pod that got SIGKILL on the last moment
/// is seen to be gone before the next group starts.
const REAPING: Duration = Duration::from_millis(100);

/// A grace is in whole seconds: one that is short by less than this is not cut by a whole one.
/// More than [`REAPING`], so that a group that waited for it does not cost the next one a second.
const ROUNDING: Duration = Duration::from_millis(250);

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
    /// Why the run is over.
    pub stop: RunStop,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStop {
    /// Every pod ended, or the time was over.
    Finished,
    /// It was called off.
    Cancelled,
    /// It hit a bug; what became of the pods is not known.
    Panicked,
}

/// Ends the pods of `plan`, group by group.
///
/// All pods of a group are asked at once. The next group starts when the last of them is gone, or
/// when the group's time ([`Group::latest_end`](crate::Group::latest_end)) is over; pods that are
/// late are waited for until the end, beside the others. Between groups the active pods are read
/// again: one that was let in just before the gate shut ends with its group, or with the current
/// one. A pod gets its own grace, or its group's time if it has none, but never past its group's
/// latest end.
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
    order.progress.begin(&plan, order.started);
    let mut run = Run::new(killer, plan, order, cancel);
    let stop = match run.all_rounds().await {
        Ok(()) => RunStop::Finished,
        Err(Cancelled) => RunStop::Cancelled,
    };
    run.give_up_on_the_rest(stop);
    RunReport { groups: run.groups, stop }
}

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
    cancel: &'a CancellationToken,
    plan: Plan,
    groups: Vec<GroupReport>,
    /// Pods not asked yet, per group.
    waiting: Vec<Vec<(Place, Pod)>>,
    seen: HashSet<PodUid>,
    kills: JoinSet<Result<Arc<PodStopped>, KillError>>,
    asked: HashMap<Id, Place>,
    /// Kills of earlier groups that were not answered in their group's time.
    overdue: HashSet<Id>,
}

// === impl Run ===

impl<'a, K: PodKiller> Run<'a, K> {
    fn new(
        killer: &'a Arc<K>,
        mut plan: Plan,
        order: &'a RunOrder,
        cancel: &'a CancellationToken,
    ) -> Self {
        let pods: Vec<_> =
            plan.groups.iter_mut().map(|group| std::mem::take(&mut group.pods)).collect();
        let groups = plan.groups.iter().zip(&pods).map(|(group, pods)| GroupReport {
            priority: group.priority,
            configured: group.configured,
            allowed: group.allowed,
            latest_end: group.latest_end,
            started: None,
            ended: None,
            pods: Vec::with_capacity(pods.len()),
        });
        let mut run = Self {
            killer,
            order,
            cancel,
            groups: groups.collect(),
            waiting: pods.iter().map(|pods| Vec::with_capacity(pods.len())).collect(),
            seen: HashSet::with_capacity(pods.iter().map(Vec::len).sum()),
            plan,
            kills: JoinSet::new(),
            asked: HashMap::new(),
            overdue: HashSet::new(),
        };
        for (group, pods) in pods.into_iter().enumerate() {
            for planned in pods {
                run.enlist(group, planned.pod, planned.grace);
            }
        }
        run
    }

    async fn all_rounds(&mut self) -> Result<(), Cancelled> {
        for group in 0..self.groups.len() {
            let batch = self.due(group);
            if !batch.is_empty() {
                self.round(group, batch).await?;
                self.look_again();
            }
        }
        // Pods that came while the last group was ending.
        while let Some(last) = self.groups.len().checked_sub(1) {
            let batch = self.due(last);
            if batch.is_empty() || self.elapsed() >= self.plan.deadline {
                break;
            }
            self.round(last, batch).await?;
            self.look_again();
        }
        self.wait_for_the_overdue().await
    }

    /// Ends `batch` as part of `group` and returns when it is gone or the group's time is over.
    async fn round(&mut self, group: usize, batch: Vec<(Place, Pod)>) -> Result<(), Cancelled> {
        if self.cancel.is_cancelled() {
            self.waiting[group] = batch;
            return Err(Cancelled);
        }
        let begun = Instant::now();
        let offset = self.elapsed();
        let latest_end = self.plan.groups[group].latest_end;
        let allowed = latest_end.saturating_sub(offset);
        let priority = self.plan.groups[group].priority;
        let pods = batch.len();
        self.order.recorder.record(&Event::GroupStarted { priority, pods, allowed });

        let mut touched = vec![group];
        for (place, pod) in batch {
            touched.push(place.group);
            self.ask(place, pod, latest_end, offset);
        }
        touched.sort_unstable();
        touched.dedup();
        for index in &touched {
            self.groups[*index].started.get_or_insert(offset);
            self.order.progress.group(*index, |group| {
                group.started.get_or_insert(begun);
            });
        }

        let wait = if allowed.is_zero() { Duration::ZERO } else { allowed + REAPING };
        let waited = self.answers(begun + wait).await;

        let left = self.asked.len() - self.overdue.len();
        self.overdue.extend(self.asked.keys());
        for index in touched {
            self.groups[index].ended = Some(self.elapsed());
            self.order.progress.group(index, |group| group.finished = Some(Instant::now()));
        }
        self.order.recorder.record(&Event::GroupEnded { priority, took: begun.elapsed(), left });
        waited
    }

    /// Asks one pod to end, in its own task: a kill that panics harms no other.
    fn ask(&mut self, place: Place, pod: Pod, latest_end: Duration, offset: Duration) {
        let room = whole_seconds(latest_end.saturating_sub(offset) + ROUNDING);
        let wants = pod.own_grace().unwrap_or(self.plan.groups[place.group].allowed);
        let grace = wants.min(room);
        let report = &mut self.groups[place.group].pods[place.pod];
        report.asked = Some(offset);
        report.grace = grace;
        report.wanted_grace = Some(wants).filter(|wants| *wants > grace);

        let request = KillRequest {
            grace: Some(grace),
            status: self.order.status.clone(),
            deadline: self.order.started.checked_add(self.order.budget.kills_until()),
            ..KillRequest::new(self.order.reason)
        };
        let killer = Arc::clone(self.killer);
        let task = self.kills.spawn(async move { killer.kill_pod(pod, request).await });
        self.asked.insert(task.id(), place);
    }

    /// Takes answers until all of the current round are in or `until` has come. Zero wait still
    /// lets the asked tasks go on by themselves.
    async fn answers(&mut self, until: Instant) -> Result<(), Cancelled> {
        while self.asked.len() > self.overdue.len() {
            tokio::select! {
                biased;
                Some(answer) = self.kills.join_next_with_id() => self.take(answer),
                () = self.cancel.cancelled() => return Err(Cancelled),
                () = sleep_until(until) => break,
            }
        }
        Ok(())
    }

    async fn wait_for_the_overdue(&mut self) -> Result<(), Cancelled> {
        self.overdue.clear();
        let until = self.order.started + self.order.budget.abandon_at();
        self.answers(until).await
    }

    fn take(&mut self, answer: Result<(Id, Result<Arc<PodStopped>, KillError>), JoinError>) {
        let (id, answer) = match answer {
            Ok((id, answer)) => (id, answer.map_err(Failure::from)),
            Err(error) => (error.id(), Err(Failure::panicked())),
        };
        self.overdue.remove(&id);
        let Some(place) = self.asked.remove(&id) else { return };
        let since = self.order.started;
        let offset = |at: Instant| at.saturating_duration_since(since);
        let now = self.elapsed();
        let report = &mut self.groups[place.group].pods[place.pod];
        let end = match answer {
            Ok(stopped) => {
                report.sigterm = stopped.signalled_at.map(offset);
                report.exit = Some(stopped.stopped_at.map_or(now, offset));
                let forced = stopped.containers.iter().filter(|container| container.forced);
                report.containers = forced.map(|container| container.name.to_string()).collect();
                if stopped.forced() { PodEnd::Killed } else { PodEnd::Exited }
            }
            Err(Failure { error, still_running }) => {
                tracing::warn!(
                    namespace = report.namespace,
                    pod = report.name,
                    error,
                    "pod not ended"
                );
                report.error = Some(error);
                report.containers = still_running;
                PodEnd::Left
            }
        };
        report.end = end;
        self.order.progress.group(place.group, |group| match end {
            PodEnd::Left => group.failed += 1,
            _ => {
                group.ended += 1;
                group.forced += usize::from(end == PodEnd::Killed);
            }
        });
    }

    /// Marks what was not answered and lets those kills go on by themselves.
    fn give_up_on_the_rest(&mut self, stop: RunStop) {
        self.kills.detach_all();
        for (_, place) in self.asked.drain() {
            let report = &mut self.groups[place.group].pods[place.pod];
            report.end = match stop {
                RunStop::Cancelled => PodEnd::Ending,
                _ => {
                    report.error = Some("no answer from the pod workers at the deadline".into());
                    self.order.progress.group(place.group, |group| group.failed += 1);
                    PodEnd::Left
                }
            };
        }
    }

    /// The pods of all groups up to `group` that were not asked yet.
    fn due(&mut self, group: usize) -> Vec<(Place, Pod)> {
        self.waiting[..=group].iter_mut().flat_map(std::mem::take).collect()
    }

    /// Enlists active pods that nobody has seen yet.
    fn look_again(&mut self) {
        for pod in self.killer.active_pods() {
            if self.seen.contains(pod.uid()) {
                continue;
            }
            if let Some(group) = self.plan.group_of(&pod) {
                let allowed = self.plan.groups[group].allowed;
                let grace = pod.own_grace().unwrap_or(allowed).min(allowed);
                self.enlist(group, pod, grace);
                self.order.progress.group(group, |group| group.pods += 1);
            }
        }
    }

    fn enlist(&mut self, group: usize, pod: Pod, grace: Duration) {
        if !self.seen.insert(pod.uid().clone()) {
            return;
        }
        let reports = &mut self.groups[group].pods;
        let place = Place { group, pod: reports.len() };
        reports.push(PodReport::spared(&pod, grace));
        self.waiting[group].push((place, pod));
    }

    fn elapsed(&self) -> Duration {
        self.order.started.elapsed()
    }
}
