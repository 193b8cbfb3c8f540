//! The ordered start of a node's pods: the reverse of a shutdown, with a time limit for each group.
//!
//! A pod waits until the groups before its own are ready or their time is over. Pods that are running when the agent
//! starts do not wait, and neither do pods that arrive after the turn of their group. The start is over when no pod is
//! waiting and every source of pods has been read. From then on, until the next boot, each pod starts at
//! once. A shutdown or a drain also ends the start, but a shutdown that an earlier agent began is waited for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::status::StatusStore;
use winddown_shared::{
    BootClock, DesiredPods, GateReason, GateReasons, Pod, PodUid, PodUidMap, StartTurn, WallClock,
};
use winddown_shutdown::Policy;

use super::plan::{StartGroup, StartPlan, start_plan};
use super::{PodStart, StartReport, StartedGroup, StartedPod};

#[cfg(test)]
mod tests;

/// The waiting reason of a pod whose place in the order is not known yet.
const NOT_SEEN: &str = "starts when all pods of the node are known";

/// The target of the log lines, which filters and readers of the journal know.
const TARGET: &str = "winddown_shutdown::start";

/// The inputs of an [`StartRun`].
pub struct StartParts {
    /// The pods that the sources want; none while that is not known.
    pub wanted: watch::Receiver<Option<Arc<DesiredPods>>>,
    /// The statuses of the pods.
    pub statuses: StatusStore,
    /// The reasons for which the admission gate is closed.
    pub gate: watch::Receiver<GateReasons>,
    /// The policy that defines the groups.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// How long a group may take to become ready before the next one starts.
    pub group_timeout: Duration,
    /// The clock for the times in the report.
    pub wall: WallClock,
    /// The clock that all agents of one boot share.
    pub boot: BootClock,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// Lets the pods of a node start in order, once [`run`](Self::run) is polled. No pod starts before it has seen them.
pub struct StartRun {
    parts: StartParts,
    turn: watch::Sender<StartTurn>,
    /// The report. Until the pods are known, that of an earlier agent of this boot, if any.
    report: watch::Sender<Option<StartReport>>,
}

/// The state of a start that is not in its report. Pure: the time, counted from the beginning, is an argument.
#[derive(Default)]
struct Start {
    /// The pods whose turn has come.
    released: HashSet<PodUid>,
    /// The waiting pods, and since when they wait.
    waiting: HashMap<PodUid, Duration>,
    /// The pods of the current group that are not ready yet, with their indices in it.
    starting: PodUidMap<usize>,
    /// The plan for the wanted pods; none before they are known.
    plan: Option<Arc<StartPlan>>,
    /// Whether every source has been read.
    all_read: bool,
    /// The last change of the statuses that has been processed.
    seen: u64,
}

/// What a step has changed. Each variant includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Nothing,
    Report,
    Turn,
    Over,
}

// === impl StartRun ===

impl StartRun {
    /// Creates a start that continues where `earlier` stopped, if that is of this boot. Returns `None` if the start of
    /// this boot is over.
    pub fn new(parts: StartParts, earlier: Option<StartReport>) -> Option<Self> {
        // The boot id stays the same over a soft reboot, and when a container is restarted.
        let earlier = earlier.filter(|report| {
            report.boot_id == parts.boot_id && report.boot >= parts.boot.system_start()
        });
        let is_over = earlier.as_ref().is_some_and(StartReport::is_over);
        let turn = watch::Sender::new(StartTurn::new(|_| Some(NOT_SEEN.into())));
        (!is_over).then(|| Self { parts, turn, report: watch::Sender::new(earlier) })
    }

    /// Decides which pods may start, for [`Intake::with_turns`](winddown_shared::Intake::with_turns).
    pub fn turn(&self) -> watch::Receiver<StartTurn> {
        self.turn.subscribe()
    }

    /// The report so far; none before the pods are known. It changes in place with every pod that becomes ready, so a
    /// reader that keeps it must copy it.
    pub fn report(&self) -> watch::Receiver<Option<StartReport>> {
        self.report.subscribe()
    }

    /// Runs until the start is over. If the future is dropped, waiting pods keep waiting.
    pub async fn run(self) {
        let Self { mut parts, turn, report } = self;
        if parts.wanted.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let (begun, group_timeout) = (Instant::now(), parts.group_timeout);
        let (wall, boot) = (parts.wall.now(), parts.boot.now());
        let first = || StartReport::new(parts.boot_id.clone(), wall, boot, group_timeout);
        let earlier = report.borrow().clone().unwrap_or_else(first);
        let mut start = Start::of(&earlier);
        // If an earlier agent began the start, some of its time has passed.
        let gone = boot.saturating_sub(earlier.boot);
        report.send_replace(Some(earlier));
        let mut statuses = parts.statuses.changes();
        loop {
            let now = gone + begun.elapsed();
            statuses.mark_unchanged();
            let (mut news, mut over_at) = (News::Nothing, None);
            report.send_if_modified(|report| {
                let Some(report) = report else { return false };
                news = start.step(&mut parts, report, now);
                // While the gate is closed, a group whose time is over stays the current one.
                let current = report.current().filter(|_| parts.gate.borrow().is_empty());
                over_at = current.map(|group| group.started + group_timeout);
                if news == News::Turn {
                    turn.send_replace(start.turn(report));
                }
                news > News::Nothing
            });
            if news == News::Over {
                turn.send_replace(StartTurn::default());
                return;
            }
            let over = async {
                match over_at {
                    Some(at) => sleep_until(begun + at.saturating_sub(gone)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                // Marked again, so that the step sees the change.
                Ok(()) = parts.wanted.changed() => parts.wanted.mark_changed(),
                Ok(()) = parts.gate.changed() => {}
                Ok(()) = statuses.changed(), if over_at.is_some() => {}
                else => return,
            }
        }
    }
}

// === impl Start ===

impl Start {
    /// Restores the state from `report`.
    fn of(report: &StartReport) -> Self {
        let uid = |pod: &StartedPod| PodUid::new(&*pod.uid);
        let current = report.current().into_iter().flat_map(|group| group.pods.iter().enumerate());
        let starting = current.filter(|(_, pod)| pod.state == PodStart::Starting);
        Self {
            released: report.pods().map(uid).collect(),
            starting: starting.map(|(place, pod)| (uid(pod), place)).collect(),
            ..Self::default()
        }
    }

    /// Processes all changes, and lets the pods start whose turn it is at `now`.
    fn step(&mut self, parts: &mut StartParts, report: &mut StartReport, now: Duration) -> News {
        let mut news = News::Nothing;
        if parts.wanted.has_changed().unwrap_or(false) || self.plan.is_none() {
            let wanted = parts.wanted.borrow_and_update().clone().unwrap_or_default();
            self.all_read = !wanted.awaited;
            news = self.see(report, start_plan(&wanted.pods, &parts.policy.borrow()), now);
        }
        let shut = *parts.gate.borrow_and_update();
        // A shutdown before the first group was begun by an earlier agent. If this is the start after a soft reboot,
        // it is over, and the controller lifts the reason as soon as it knows.
        let waits = |by| match by {
            GateReason::Startup => true,
            GateReason::Shutdown | GateReason::UnitStop => report.groups.is_empty(),
            GateReason::Notice | GateReason::Drain => false,
        };
        if !shut.iter().all(waits) {
            self.call_off(report, now);
            return News::Over;
        }
        // While the gate is closed, a pod whose turn came would only be rejected.
        if shut.is_empty() {
            news = news.max(self.advance(report, &parts.statuses, parts.group_timeout, now));
            if self.waiting.is_empty() && report.current().is_none() && self.all_read {
                report.end(now, false);
                return News::Over;
            }
        }
        if news == News::Turn {
            self.note_waiting(report);
        }
        news
    }

    /// Adopts the set of wanted pods. Those of the current and earlier groups do not wait. New waiting pods count as a
    /// new turn.
    fn see(&mut self, report: &mut StartReport, plan: StartPlan, now: Duration) -> News {
        let wanted = || plan.groups.iter().flat_map(|group| &group.pods);
        let uids: HashSet<&PodUid> = wanted().map(Pod::uid).collect();
        self.released.retain(|uid| uids.contains(uid));
        self.waiting.retain(|uid, _| uids.contains(uid));
        let gone = self.starting.keys().filter(|uid| !uids.contains(*uid)).cloned();
        let mut news = News::Nothing;
        for uid in gone.collect::<Vec<_>>() {
            news = self.note(report, &uid, PodStart::Removed, now);
        }
        let known = self.waiting.len();
        for pod in wanted().filter(|pod| !self.released.contains(pod.uid())) {
            self.waiting.entry(pod.uid().clone()).or_insert(now);
        }
        if self.waiting.len() > known {
            news = News::Turn;
        }
        if let Some(turn) = report.current().map(StartedGroup::rank) {
            for group in plan.groups.iter().filter(|group| group.rank <= turn) {
                self.release(report, group, now);
            }
        }
        self.plan = Some(Arc::new(plan));
        news
    }

    /// Advances as far as possible at `now`. The cost is linear in the changed statuses and, if a group starts, in all
    /// pods.
    fn advance(
        &mut self,
        report: &mut StartReport,
        statuses: &StatusStore,
        group_timeout: Duration,
        now: Duration,
    ) -> News {
        let mut news = News::Nothing;
        while let Some(plan) = self.plan.clone() {
            let Some(started) = report.current().map(|current| current.started) else {
                let waits = |pod: &Pod| self.waiting.contains_key(pod.uid());
                let Some(next) = plan.groups.iter().find(|group| group.pods.iter().any(waits))
                else {
                    break;
                };
                report.groups.push(StartedGroup::new(next, now));
                self.release(report, next, now);
                news = News::Turn;
                continue;
            };
            let (changed, seen) = statuses.changed_since(self.seen);
            self.seen = seen;
            for entry in changed {
                if let Some(state) = became(&entry.status) {
                    news = news.max(self.note(report, entry.pod.uid(), state, now));
                }
            }
            if !self.starting.is_empty() && now < started + group_timeout {
                break;
            }
            self.starting.clear();
            if let Some(current) = report.current_mut() {
                current.close(now);
                tell(current);
            }
            news = News::Turn;
        }
        news
    }

    /// Records the state of a pod if the current group is waiting for it.
    fn note(
        &mut self,
        report: &mut StartReport,
        uid: &PodUid,
        state: PodStart,
        now: Duration,
    ) -> News {
        let (Some(place), Some(group)) = (self.starting.remove(uid), report.current_mut()) else {
            return News::Nothing;
        };
        let since = now.saturating_sub(group.started);
        if let Some(pod) = group.pods.get_mut(place) {
            (pod.state, pod.ready) = (state, Some(since));
        }
        News::Report
    }

    /// Lets the waiting pods of `group` start. Lists them only if it is the current group.
    fn release(&mut self, report: &mut StartReport, group: &StartGroup, now: Duration) {
        for pod in &group.pods {
            let Some(since) = self.waiting.remove(pod.uid()) else { continue };
            self.released.insert(pod.uid().clone());
            let current = report.current_mut().filter(|current| current.rank() == group.rank);
            if let Some(current) = current {
                self.starting.insert(pod.uid().clone(), current.pods.len());
                current.pods.push(StartedPod::new(pod, now.saturating_sub(since)));
                // Its state may be known already, so read all statuses again.
                self.seen = 0;
            }
        }
    }

    fn note_waiting(&self, report: &mut StartReport) {
        let pods = self.plan.iter().flat_map(|plan| &plan.groups).flat_map(|group| &group.pods);
        let waiting = pods.filter(|pod| self.waiting.contains_key(pod.uid()));
        report.waiting = waiting.map(|pod| pod.pod_ref().to_string()).collect();
    }

    fn call_off(&self, report: &mut StartReport, now: Duration) {
        self.note_waiting(report);
        if let Some(current) = report.current_mut() {
            current.took = Some(now.saturating_sub(current.started));
        }
        report.end(now, true);
    }

    /// Returns the decision function for the intake. A pod that has not been seen yet waits until it has.
    fn turn(&self, report: &StartReport) -> StartTurn {
        let (released, plan) = (self.released.clone(), self.plan.clone());
        let current = report
            .current()
            .map(|group| (group.rank(), Arc::<str>::from(format!("starts after {}", group.name))));
        StartTurn::new(move |pod| match (&current, &plan) {
            _ if released.contains(pod.uid()) => None,
            (Some((rank, _)), Some(plan)) if plan.rank(pod) <= *rank => None,
            (Some((_, waits)), _) => Some(Arc::clone(waits)),
            (None, _) => Some(NOT_SEEN.into()),
        })
    }
}

/// Returns the state of a pod; none while it is still starting.
fn became(status: &api::PodStatus) -> Option<PodStart> {
    let ready = |c: &api::PodCondition| c.type_ == "Ready" && c.status == "True";
    match status.phase.as_deref() {
        Some("Succeeded") => Some(PodStart::Succeeded),
        Some("Failed") => Some(PodStart::Failed),
        _ => status.conditions.iter().flatten().any(ready).then_some(PodStart::Ready),
    }
}

/// Logs why the next group starts.
fn tell(group: &StartedGroup) {
    let late: Vec<String> = group.not_ready().collect();
    let took = winddown_shared::display::duration(group.took.unwrap_or_default());
    let name = &*group.name;
    if late.is_empty() {
        tracing::info!(target: TARGET, "start: {name} ready after {took}");
    } else {
        let late = late.join(", ");
        tracing::warn!(
            target: TARGET,
            "start: {name} not ready after {took}, the next group starts; not ready: {late}"
        );
    }
}
