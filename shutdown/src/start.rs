//! The ordered start of a node's pods: the reverse of a shutdown, with a bound for each group.
//!
//! A pod waits until the groups before its own are ready, or their time is over. Pods that run when the agent
//! starts do not wait, and neither does a pod that comes when the turn of its group is over. The start is over when no
//! pod waits and every source of pods has been read whole; from then on each pod starts at once, until the next boot.
//! A shutdown or a drain ends it as well.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::status::StatusStore;
use winddown_shared::{
    BootClock, DesiredPods, GateReason, GateReasons, Pod, PodUid, StartTurn, WallClock,
};

use crate::Policy;
use crate::plan::{StartGroup, StartPlan, start_plan};

mod report;
#[cfg(test)]
mod tests;

pub use report::{PodStart, StartOutcome, StartReport, StartedGroup, StartedPod};

/// What is said of a pod until its place in the order is known.
const NOT_SEEN: &str = "starts when all pods of the node are known";

/// What an [`OrderedStart`] sees of the node.
pub struct StartParts {
    /// What all sources want; none while that is not known.
    pub wanted: watch::Receiver<Option<Arc<DesiredPods>>>,
    /// What becomes of the pods.
    pub statuses: StatusStore,
    /// What keeps new pods out.
    pub gate: watch::Receiver<GateReasons>,
    /// Makes the groups.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// How long a group may take to be ready before the next one starts.
    pub group_timeout: Duration,
    /// Labels the report.
    pub wall: WallClock,
    /// What the agents of one boot have in common.
    pub boot: BootClock,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// Lets the pods of a node start in order. [`run`](Self::run) does; until it has seen the pods, none starts.
pub struct OrderedStart {
    parts: StartParts,
    /// What an earlier agent of this boot left.
    earlier: Option<StartReport>,
    turn: watch::Sender<StartTurn>,
    report: watch::Sender<Option<Arc<StartReport>>>,
}

/// A start on its way. Pure: the time is an argument, counted from the beginning.
struct Start {
    report: StartReport,
    /// Whose turn has come.
    released: HashSet<PodUid>,
    /// Since when the others wait.
    waiting: HashMap<PodUid, Duration>,
    /// Of the pods that are wanted; none before they were seen.
    plan: Option<Arc<StartPlan>>,
    /// Every source was read whole.
    is_complete: bool,
}

// === impl OrderedStart ===

impl OrderedStart {
    /// Goes on where `earlier` stopped if that is of this boot. None: the start of this boot is over.
    pub fn new(parts: StartParts, earlier: Option<StartReport>) -> Option<Self> {
        // After a soft reboot, and in a container, the boot id is that of before.
        let earlier = earlier.filter(|report| {
            report.boot_id == parts.boot_id && report.boot >= parts.boot.system_start()
        });
        let is_over = earlier.as_ref().is_some_and(StartReport::is_over);
        let report = watch::Sender::new(earlier.clone().map(Arc::new));
        let turn = watch::Sender::new(StartTurn::new(|_| Some(NOT_SEEN.into())));
        (!is_over).then_some(Self { parts, earlier, turn, report })
    }

    /// For [`Intake::with_turns`](winddown_shared::Intake::with_turns).
    pub fn turn(&self) -> watch::Receiver<StartTurn> {
        self.turn.subscribe()
    }

    /// How far the start is; none before the pods are known.
    pub fn report(&self) -> watch::Receiver<Option<Arc<StartReport>>> {
        self.report.subscribe()
    }

    /// Goes on until the start is over. Dropping it leaves those that wait waiting.
    pub async fn run(mut self) {
        if self.parts.wanted.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let (begun, group_timeout) = (Instant::now(), self.parts.group_timeout);
        let (wall, boot) = (self.parts.wall.now(), self.parts.boot.now());
        let report = self.earlier.take().unwrap_or_else(|| {
            StartReport::new(self.parts.boot_id.clone(), wall, boot, group_timeout)
        });
        // Of an earlier agent's start some time is gone.
        let gone = boot.saturating_sub(report.boot);
        let mut start = Start::new(report);
        let mut statuses = self.parts.statuses.changes();
        loop {
            let now = gone + begun.elapsed();
            statuses.mark_unchanged();
            let is_over = self.step(&mut start, now);
            self.report.send_if_modified(|shown| {
                let changed = shown.as_deref() != Some(&start.report);
                if changed {
                    *shown = Some(Arc::new(start.report.clone()));
                }
                changed
            });
            if is_over {
                self.turn.send_replace(StartTurn::default());
                return;
            }
            let until =
                start.time_over(group_timeout).map(|over| begun + over.saturating_sub(gone));
            let over = async {
                match until {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                // For the step to see.
                Ok(()) = self.parts.wanted.changed() => self.parts.wanted.mark_changed(),
                Ok(()) = self.parts.gate.changed() => {}
                Ok(()) = statuses.changed(), if until.is_some() => {}
                else => return,
            }
        }
    }

    /// Lets those start whose turn it is now. Says whether the start is over.
    fn step(&mut self, start: &mut Start, now: Duration) -> bool {
        let mut changed = false;
        if self.parts.wanted.has_changed().unwrap_or(false) || start.plan.is_none() {
            let wanted = self.parts.wanted.borrow_and_update().clone().unwrap_or_default();
            start.is_complete = wanted.complete;
            changed = start.see(start_plan(&wanted.pods, &self.parts.policy.borrow()), now);
        }
        let shut = *self.parts.gate.borrow_and_update();
        if shut.iter().any(|by| by != GateReason::Startup) {
            start.call_off(now);
            return true;
        }
        // A pod whose turn came now would be refused, which is not waited for.
        if !shut.is_empty() {
            return false;
        }
        let statuses = &self.parts.statuses;
        let became = |uid: &PodUid| statuses.get(uid).and_then(|status| became(&status));
        changed |= start.advance(self.parts.group_timeout, now, became);
        if start.waiting.is_empty() && start.report.current().is_none() && start.is_complete {
            start.report.end(now, false);
            return true;
        }
        if changed {
            start.note_waiting();
            self.turn.send_replace(start.turn());
        }
        false
    }
}

// === impl Start ===

impl Start {
    fn new(report: StartReport) -> Self {
        let released = report.pods().map(|pod| PodUid::new(&*pod.uid)).collect();
        Self { report, released, waiting: HashMap::new(), plan: None, is_complete: false }
    }

    /// When the time of the group that others wait for is over.
    fn time_over(&self, group_timeout: Duration) -> Option<Duration> {
        self.report.current().map(|group| group.started + group_timeout)
    }

    /// Takes in which pods are wanted now: those of the current group and of earlier ones do not wait. Says whether
    /// there are new ones.
    fn see(&mut self, plan: StartPlan, now: Duration) -> bool {
        let wanted = || plan.groups.iter().flat_map(|group| &group.pods);
        let uids: HashSet<&PodUid> = wanted().map(Pod::uid).collect();
        self.released.retain(|uid| uids.contains(uid));
        self.waiting.retain(|uid, _| uids.contains(uid));
        let known = self.waiting.len();
        for pod in wanted().filter(|pod| !self.released.contains(pod.uid())) {
            self.waiting.entry(pod.uid().clone()).or_insert(now);
        }
        let changed = self.waiting.len() > known;
        if let Some(turn) = self.report.current().map(StartedGroup::rank) {
            for group in plan.groups.iter().filter(|group| group.rank <= turn) {
                self.release(group, now);
            }
        }
        self.plan = Some(Arc::new(plan));
        changed
    }

    /// Goes as far as it may at this time. Says whether it is another turn.
    fn advance(
        &mut self,
        group_timeout: Duration,
        now: Duration,
        became: impl Fn(&PodUid) -> Option<PodStart>,
    ) -> bool {
        let mut changed = false;
        while let Some(plan) = self.plan.clone() {
            let Some(current) = self.report.current_mut() else {
                let is_next = |group: &&StartGroup| {
                    group.pods.iter().any(|pod| self.waiting.contains_key(pod.uid()))
                };
                let Some(next) = plan.groups.iter().find(is_next) else { break };
                self.report.groups.push(StartedGroup::new(next, now));
                self.release(next, now);
                changed = true;
                continue;
            };
            for pod in current.pods.iter_mut().filter(|pod| pod.state == PodStart::Starting) {
                let uid = PodUid::new(&*pod.uid);
                let is_wanted = self.released.contains(&uid);
                let state = if is_wanted { became(&uid) } else { Some(PodStart::Gone) };
                if let Some(state) = state {
                    pod.state = state;
                    pod.ready = Some(now.saturating_sub(current.started));
                }
            }
            let late: Vec<String> = current.not_ready().collect();
            if !late.is_empty() && now < current.started + group_timeout {
                break;
            }
            current.close(now);
            tell(current, &late);
            changed = true;
        }
        changed
    }

    /// It is the turn of those of `group` that wait. A group that is over is not listed again.
    fn release(&mut self, group: &StartGroup, now: Duration) {
        for pod in &group.pods {
            let Some(since) = self.waiting.remove(pod.uid()) else { continue };
            self.released.insert(pod.uid().clone());
            let current = self.report.current_mut().filter(|current| current.rank() == group.rank);
            if let Some(current) = current {
                current.pods.push(StartedPod::new(pod, now.saturating_sub(since)));
            }
        }
    }

    fn note_waiting(&mut self) {
        let pods = self.plan.iter().flat_map(|plan| &plan.groups).flat_map(|group| &group.pods);
        let waiting = pods.filter(|pod| self.waiting.contains_key(pod.uid()));
        self.report.waiting = waiting.map(|pod| pod.label().to_string()).collect();
    }

    fn call_off(&mut self, now: Duration) {
        self.note_waiting();
        if let Some(current) = self.report.current_mut() {
            current.took = Some(now.saturating_sub(current.started));
        }
        self.report.end(now, true);
    }

    /// What the intake goes by: a pod that was not seen yet waits until it has been.
    fn turn(&self) -> StartTurn {
        let (released, plan) = (self.released.clone(), self.plan.clone());
        let current = self.report.current();
        let current = current
            .map(|group| (group.rank(), Arc::<str>::from(format!("starts after {}", group.name))));
        StartTurn::new(move |pod| match (&current, &plan) {
            _ if released.contains(pod.uid()) => None,
            (Some((rank, _)), Some(plan)) if plan.rank(pod) <= *rank => None,
            (Some((_, waits)), _) => Some(Arc::clone(waits)),
            (None, _) => Some(NOT_SEEN.into()),
        })
    }
}

/// What has become of a pod; none while it starts.
fn became(status: &api::PodStatus) -> Option<PodStart> {
    let ready = |c: &api::PodCondition| c.type_ == "Ready" && c.status == "True";
    match status.phase.as_deref() {
        Some("Succeeded") => Some(PodStart::Succeeded),
        Some("Failed") => Some(PodStart::Failed),
        _ => status.conditions.iter().flatten().any(ready).then_some(PodStart::Ready),
    }
}

/// Says why the next group starts.
fn tell(group: &StartedGroup, late: &[String]) {
    let took = winddown_shared::display::duration(group.took.unwrap_or_default());
    let name = &*group.name;
    if late.is_empty() {
        tracing::info!("start: {name} ready after {took}");
    } else {
        let late = late.join(", ");
        tracing::warn!(
            "start: {name} not ready after {took}, the next group starts; not ready: {late}"
        );
    }
}
