//! The status, metrics and plan of a shutdown.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_control::api::{self, Check, DrainRequest, NoticeBody, ReportList, WithdrawAnswer};
use winddown_control::{ApiError, Peer};
use winddown_shared::{
    GateReason, Grace, InhibitorState, LockState, Pod, PodKiller, PodSnapshot, RequestReport,
    Runtime, WallTime, error_chain,
};
use winddown_shutdown::{
    Budget, Plan, PlanWarning, PlannedBudget, Progress, ProgressPhase, ShutdownPlan, Trigger,
    plan_with, plan_within, why_unawaited,
};

use super::drain::DrainRun;
use super::{Joined, last_boot, reports, role};
use crate::api::blocking;
use crate::links::{Draining, NodeEnd, Observe};
use crate::metrics::{InhibitorFacts, ScrapedNode};
use crate::plugin::{Events, PluginSection, ShutdownAnswers};
use crate::status_view::lock_state;
use winddown_control::protection::AgentRole;

impl<R: Runtime> PluginSection for Joined<R> {
    fn status(&self, status: &mut api::Status) {
        status.lock = self.lock();
        status.shutdown = self.shutdown_progress();
        status.drain = self.drain_status();
        status.notices = self.notice_statuses();
        status.last_boot = self.kept.last_boot.status();
        status.shutdown_plan = self.plan_summary();
        status.protection = Some(self.protection());
        status.lost_report = self.kept.unstored.problem().borrow().clone();
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        let state = self.lock.inhibitor.state().borrow().clone();
        facts.inhibitor = InhibitorFacts {
            held: state.lock == LockState::Held,
            delay_max: state.delay,
            scheduled: state.scheduled.map(|scheduled| scheduled.at),
            delay_wanted: self.policy.borrow().delay_wanted(),
            refused_signals: (self.lock.refused_signals)(),
        };
        facts.protected = Some(self.protection().is_protected());
        facts.report_lost = Some(self.kept.unstored.problem().borrow().is_some());
        facts.last_shutdown_graceful = self.kept.last_boot.graceful();
    }

    fn readiness(&self) -> Option<Check> {
        let state = self.lock.inhibitor.state().borrow().clone();
        Some(match &state.lock {
            LockState::Held | LockState::Released => Check::passed("lock"),
            LockState::Waiting { why } | LockState::Absent { why } => {
                Check::failed("lock", why.to_string())
            }
        })
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        async {
            tokio::join!(self.kubelet.refresh(), self.lock.inhibitor.look_again());
        }
        .boxed()
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        if self.trigger == Trigger::Drill {
            return std::future::ready(()).boxed();
        }
        let (state, boot_id) =
            (self.kept.state_directory.clone(), self.core.identity.boot_id.clone());
        last_boot::note_stopped(state, boot_id, self.core.wall.now()).boxed()
    }
}

/// Implemented for an `Arc`, because a drain continues without its caller.
impl<R: Runtime> ShutdownAnswers for Arc<Joined<R>> {
    fn plan(&self, within: Option<Duration>) -> BoxFuture<'_, ShutdownPlan> {
        let plan = match within {
            None => self.planned().0,
            Some(within) => {
                let policy = Arc::clone(&self.policy.borrow());
                let pods = self.core.workers.running().into_pods();
                plan_within(&pods, &policy, self.work(), within)
            }
        };
        async move {
            let mut view = self.view_of(&plan);
            view.within_seconds = within.map(|within| within.as_secs_f64());
            self.show_consent(&plan, &mut view).await;
            view
        }
        .boxed()
    }

    fn drain(&self, request: DrainRequest) -> Result<Events, ApiError> {
        let (uid, pid) = match request.by {
            Some(Peer::Local { uid, pid, .. }) => (Some(uid), pid),
            Some(Peer::Network(_)) | None => (None, None),
        };
        let message = Some(request.text).filter(|text| !text.is_empty());
        let by = RequestReport { uid, pid, message, ..RequestReport::default() };
        let requested_by = Some(by).filter(|by| *by != RequestReport::default());
        self.start_drain(request.timeout_seconds.map(Duration::from_secs), requested_by)
    }

    fn give_notice(&self, body: NoticeBody) -> BoxFuture<'_, Result<Events, ApiError>> {
        self.start_notice(body).boxed()
    }

    fn withdraw_notice(&self) -> BoxFuture<'_, WithdrawAnswer> {
        self.termination_notice().boxed()
    }

    fn reports(&self) -> BoxFuture<'_, Result<ReportList, ApiError>> {
        let store = self.kept.reports.clone();
        blocking(&self.kept.reading, move || reports::list(&store)).boxed()
    }

    fn report(&self, id: String) -> BoxFuture<'_, Result<serde_json::Value, ApiError>> {
        let store = self.kept.reports.clone();
        blocking(&self.kept.reading, move || reports::find(&store, &id)).boxed()
    }
}

/// Follows everything that shows whether the node is about to go down.
pub(super) struct NodeEndView<R: Runtime> {
    shutdown: Arc<Joined<R>>,
    inhibitor: watch::Receiver<InhibitorState>,
    notices: winddown_shared::Notices,
    progress: watch::Receiver<Progress>,
    known: watch::Receiver<bool>,
    drained: watch::Receiver<Draining<DrainRun>>,
    verdict: watch::Receiver<Option<api::Protection>>,
}

impl<R: Runtime> Observe<NodeEnd> for NodeEndView<R> {
    fn now(&mut self) -> NodeEnd {
        let known = *self.known.borrow_and_update();
        let preparing = self.inhibitor.borrow_and_update().preparing;
        let announced = preparing || !self.notices.borrow_and_update().in_effect.is_empty();
        let runs = matches!(
            self.progress.borrow_and_update().phase,
            ProgressPhase::Ending | ProgressPhase::Ended | ProgressPhase::Released
        );
        // A shutdown that an earlier agent began continues until it is cancelled.
        let carried = !known && self.shutdown.core.gate.reasons().contains(GateReason::Startup);
        let last = self.shutdown.kept.last_boot.status();
        NodeEnd {
            is_near: announced || runs || carried,
            draining: match &*self.drained.borrow_and_update() {
                Draining::No => Draining::No,
                Draining::InProgress(_) => Draining::InProgress(()),
                Draining::Done => Draining::Done,
            },
            protection: self.verdict.borrow_and_update().clone(),
            last: last.map(|last| last.text).unwrap_or_default(),
        }
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        async {
            tokio::select! {
                Ok(()) = self.inhibitor.changed() => {}
                Ok(()) = self.notices.changed() => {}
                Ok(()) = self.progress.changed() => {}
                Ok(()) = self.known.changed() => {}
                Ok(()) = self.drained.changed() => {}
                Ok(()) = self.verdict.changed() => {}
                else => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl<R: Runtime> Joined<R> {
    /// Whether the node is about to go down, for other plug-ins.
    pub(super) fn end(self: &Arc<Self>) -> NodeEndView<R> {
        NodeEndView {
            shutdown: Arc::clone(self),
            inhibitor: self.lock.inhibitor.state(),
            notices: self.notices.notices(),
            progress: self.progress.subscribe(),
            known: self.core.pods_known.subscribe(),
            drained: self.drain.state.subscribe(),
            verdict: self.verdict.subscribe(),
        }
    }

    fn lock(&self) -> api::LockStatus {
        let said = self.lock.inhibitor.state().borrow().clone();
        let (state, why) = lock_state(&said.lock);
        api::LockStatus {
            state,
            why,
            held_since: *self.lock.held_since.borrow(),
            delay_seconds: said.delay.map(|d| d.as_secs_f64()),
            required_seconds: self.policy.borrow().delay_wanted().as_secs_f64(),
            set_by: said.delay_set_by.map(|f| f.to_string()),
        }
    }

    fn shutdown_progress(&self) -> api::ShutdownProgress {
        let scheduled = self.lock.inhibitor.state().borrow().scheduled.clone();
        api::ShutdownProgress {
            scheduled: scheduled.map(|one| api::ScheduledStatus {
                at: one.at,
                kind: one.kind.as_str().to_owned(),
                message: one.message.as_deref().map(str::to_owned),
            }),
            ..self.progress_of(&self.progress.subscribe().borrow())
        }
    }

    pub(super) fn progress_of(&self, progress: &Progress) -> api::ShutdownProgress {
        api::ShutdownProgress {
            phase: phase(progress),
            since: progress.started.and_then(|at| self.wall_of(at)),
            deadline: progress.deadline.and_then(|at| self.wall_of(at)),
            pods_unknown: progress.pods_unknown,
            groups: progress
                .groups
                .iter()
                .map(|group| api::GroupProgress {
                    priority: group.priority,
                    name: group.name.as_deref().map(str::to_owned),
                    pods: group.pods,
                    terminated: group.ended,
                    started: group.started.is_some(),
                    finished: group.finished.is_some(),
                })
                .collect(),
            scheduled: None,
        }
    }

    pub(super) fn wall_of(&self, at: Instant) -> Option<WallTime> {
        let (now, wall) = (Instant::now(), self.core.wall.now());
        match at.checked_duration_since(now) {
            Some(ahead) => wall.checked_add(ahead).ok(),
            None => wall.checked_sub(now.duration_since(at)).ok(),
        }
    }

    fn view_of(&self, plan: &Plan) -> ShutdownPlan {
        let login = self.lock.inhibitor.state().borrow().clone();
        let pods_unknown = !self.core.workers.running().known;
        let shown = ShutdownPlan::of(plan, login.delay_set_by.as_deref());
        let mut view = ShutdownPlan { pods_unknown, ..shown };
        let why = why_unawaited(&login).filter(|_| login.has_lock);
        view.warnings.extend(why.map(|why| {
            format!("a shutdown does not wait for this agent{why}; the stop of its unit has to")
        }));
        view.warnings.extend(self.objection().and_then(|objection| objection.text()));
        self.show_terminating(&mut view);
        if role(&self.core) == AgentRole::Companion {
            view.mark_lost(plan);
        }
        view
    }

    /// Adds what is left of the grace periods of pods that are terminating already.
    fn show_terminating(&self, view: &mut ShutdownPlan) {
        let snapshots = self.core.workers.snapshot();
        let left = |snapshot: &PodSnapshot| {
            snapshot.grace_left.map(|left| (snapshot.uid.to_string(), left.as_secs_f64()))
        };
        let left: HashMap<String, f64> = snapshots.iter().filter_map(left).collect();
        for pod in view.groups.iter_mut().flat_map(|group| &mut group.pods) {
            pod.grace_left_seconds = left.get(&pod.uid).copied();
        }
    }

    /// Adds to each pod the disruption budgets and eviction responders that are consulted before it is ended.
    async fn show_consent(&self, plan: &Plan, view: &mut ShutdownPlan) {
        let pods = plan.groups.iter().flat_map(|group| &group.pods).map(|planned| &planned.pod);
        let pods: Vec<Pod> = pods.cloned().collect();
        let mut asked: HashMap<_, _> = match self.core.runtime.eviction_constraints(&pods).await {
            Ok(asked) => asked.into_iter().collect(),
            Err(error) => {
                let why = error_chain(&error);
                view.warnings
                    .push(format!("disruption budgets and eviction responders are unknown: {why}"));
                return;
            }
        };
        let shown = view.groups.iter_mut().flat_map(|group| &mut group.pods);
        for (shown, pod) in shown.zip(&pods) {
            let Some(consent) = asked.remove(pod.uid()) else { continue };
            let budgets = consent.budgets.into_iter().map(|budget| PlannedBudget {
                name: budget.name,
                disruptions_allowed: budget.allowed,
            });
            shown.disruption_budgets = budgets.collect();
            shown.eviction_responders = consent.responders;
        }
    }

    /// Plans a shutdown as of now, within the time that logind actually allows.
    pub(super) fn planned(&self) -> (Plan, Budget) {
        let policy = Arc::clone(&self.policy.borrow());
        let budget = Budget::of_login(&policy, &self.lock.inhibitor.state().borrow());
        let pods = self.core.workers.running().into_pods();
        (plan_with(&pods, &policy, self.work(), Some(budget.pods)), budget)
    }

    fn plan_summary(&self) -> api::PlanSummary {
        let policy = Arc::clone(&self.policy.borrow());
        let (plan, budget) = self.planned();
        let groups = plan.groups.iter().zip(plan.gone_within());
        let cuts = plan.warnings().into_iter().filter(is_cut);
        let (usual, chosen): (Vec<_>, Vec<_>) = cuts.partition(is_of_default);
        let raise = (!usual.is_empty() || !chosen.is_empty()).then(|| policy.what_to_raise());
        let texts = |cuts: Vec<PlanWarning>| cuts.iter().map(ToString::to_string).collect();
        api::PlanSummary {
            enabled: policy.is_enabled(),
            requested_seconds: plan.requested.as_secs_f64(),
            available_seconds: budget.pods.as_secs_f64(),
            groups: groups
                .filter(|(group, _)| !group.pods.is_empty())
                .map(|(group, gone)| api::GroupSummary {
                    priority: group.priority,
                    name: group.name().map(Cow::into_owned),
                    deadline_seconds: gone.as_secs_f64(),
                    pods: group.pods.len(),
                })
                .collect(),
            warnings: texts(chosen),
            default_grace_cut: texts(usual),
            raise: raise.unwrap_or_default().to_owned(),
        }
    }
}

/// Whether the warning is about pods that get less than the grace period they ask for.
fn is_cut(warning: &PlanWarning) -> bool {
    matches!(warning, PlanWarning::GraceCut { .. } | PlanWarning::GracesCut { .. })
}

/// Whether it is about the default grace period, which the author of no manifest chose.
fn is_of_default(warning: &PlanWarning) -> bool {
    match warning {
        PlanWarning::GraceCut { wants, .. } => *wants == Grace::DEFAULT,
        PlanWarning::GracesCut { want, .. } => *want == (Grace::DEFAULT, Grace::DEFAULT),
        _ => false,
    }
}

fn phase(progress: &Progress) -> api::Phase {
    match progress.phase {
        ProgressPhase::Idle => api::Phase::Idle,
        ProgressPhase::Ending => api::Phase::Running,
        ProgressPhase::Cancelled => api::Phase::Cancelled,
        ProgressPhase::Ended | ProgressPhase::Released => api::Phase::Done,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use winddown_host::OneThread;

    use super::*;

    #[test]
    fn requests_that_wait_for_a_disk_that_hangs_take_one_thread() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().max_blocking_threads(2).build().unwrap().block_on(async {
            let (reading, (go, gate)) = (OneThread::default(), mpsc::channel());
            let hangs = blocking(&reading, move || Ok(gate.recv().is_ok()));
            let requests = async { tokio::join!(hangs, blocking(&reading, || Ok(true))) };
            let others = async {
                let free = tokio::task::spawn_blocking(|| ());
                let free = tokio::time::timeout(Duration::from_secs(5), free).await;
                go.send(()).unwrap();
                free
            };
            let ((first, second), free) = tokio::join!(requests, others);
            assert!(free.is_ok(), "a thread is left for others");
            assert!(first.unwrap() && second.unwrap());
        });
    }
}
