//! Drains a node: stops all pods while the node stays up.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use winddown_shared::{
    BootClock, GateReason, KillReason, NodeEnding, Pod, Recorder, RequestReport, ShutdownKind,
    StatusOverride, WallClock,
};

use crate::EndingPods;
use crate::controller::before_now;
use crate::journal::{Journal, RunStart};
use crate::plan::plan_on;
use crate::policy::{Groups, MAX_GROUPS_TOTAL};
use crate::report::{Ended, ReportHeader};
use crate::run::{RunParams, carry_out};
use crate::{
    Budget, BudgetReport, GroupReport, Plan, Policy, ProgressPhase, ProgressSender, RecordStore,
    RunOrder, RunPhase, RunRecord, RunStop, ShutdownReport, Trigger,
};

#[cfg(test)]
mod tests;

/// The time of a drain if neither the policy nor the operator gives one.
const DEFAULT_DRAIN_TIME: Duration = Duration::from_secs(60);

const MESSAGE: &str = "Pod was terminated because an operator drained the node.";

/// The parameters of [`drain`].
pub struct DrainOrder {
    /// The order and time of the groups, as in a shutdown.
    pub policy: Arc<Policy>,
    /// The time for all pods, at most a year; the policy's if none. With more than that, pods can use more of their
    /// own grace periods.
    pub time: Option<Duration>,
    /// Who requested the drain, for the report.
    pub requested_by: Option<RequestReport>,
    /// Receives an event when a group starts and when it ends.
    pub recorder: Arc<dyn Recorder>,
    /// Receives the progress at every step.
    pub progress: ProgressSender,
    /// The clock for the times in the report.
    pub clock: WallClock,
    /// The clock that all agents of one boot share.
    pub boot_clock: BootClock,
    /// The kernel's boot id, for the report and the record.
    pub boot_id: String,
    /// The places for the record, as in [`ShutdownParts`](crate::ShutdownParts).
    pub records: Vec<Arc<dyn RecordStore>>,
    /// The record of an earlier agent that had begun this drain. The time since it was written is added to the drain's.
    pub carried: Option<RunRecord>,
}

/// Stops all active pods in shutdown order and returns a report.
///
/// This touches neither a login manager nor the admission gate: close the gate for [`GateReason::Drain`]
/// first, or the drain chases pods that come back until its time is over. Pods turn not ready at once
/// and stay so afterwards; undo both to end the drain. With a disabled policy, ordinary and critical pods
/// get half of the time each (of 60 s if `time` is none). Cancelling `cancel` spares the pods that have
/// not been requested to stop yet. The report is in the record only ([`RunRecord::report_of_drain`]), which is not closed: who
/// stores the report knows when the drain is over.
pub async fn drain<K: EndingPods>(
    killer: &Arc<K>,
    mut order: DrainOrder,
    cancel: &CancellationToken,
) -> ShutdownReport {
    order.carried = order.carried_until_now();
    let carried = order.carried.as_ref();
    let started = before_now(carried.map_or(Duration::ZERO, |record| record.report.took));
    let plan = order.plan(&killer.running().into_pods());
    let budget = Budget::of_drain(&order.policy, plan.deadline);
    let header = order.header(&plan, budget);
    let start = match carried {
        Some(record) => RunStart::of(record, started),
        None => RunStart::new(started, &order.boot_clock),
    };
    let (clock, requested_by) = (order.clock.clone(), header.requested_by.clone());
    let mut journal = Journal::new(header, clock, start, &order.records);
    let mut params = RunParams::default();
    if let Some(record) = order.carried {
        journal = journal.after(record.sequence, record.phase);
        params.first_group = Some(Duration::from_millis(record.first_group_ms));
        params.carried = Some(record.report.groups);
    }
    let run_order = RunOrder {
        reason: Trigger::Drain.kill_reason(),
        status: Some(StatusOverride::failed("Terminated", MESSAGE, Some(MESSAGE.into()))),
        started,
        budget,
        recorder: order.recorder,
        progress: order.progress.clone(),
    };
    let ending = NodeEnding {
        reason: KillReason::Drain,
        node_action: None,
        deadline: started + budget.pods,
        requested_by,
        notice: None,
    };
    killer.announce(GateReason::Drain, ending);
    killer.lame_duck(GateReason::Drain, true);
    params.journal = Some(&mut journal);
    let run = carry_out(killer, plan, &run_order, params, cancel).await;
    journal.stop = Some(run.stop);
    journal.note(RunPhase::Reporting, &run.groups).await;
    order.progress.phase(match run.stop {
        RunStop::Cancelled => {
            killer.lame_duck(GateReason::Drain, false);
            ProgressPhase::Cancelled
        }
        _ => ProgressPhase::Ended,
    });
    let ended = Ended { at: order.clock.now(), took: started.elapsed() };
    ShutdownReport::new(journal.header, run, ended)
}

impl DrainOrder {
    /// Returns the time that a drain may take if the operator gives none.
    pub fn default_time(policy: &Policy) -> Duration {
        if policy.is_enabled() { policy.requested() } else { DEFAULT_DRAIN_TIME }
    }

    fn carried_until_now(&self) -> Option<RunRecord> {
        let now = self.boot_clock.now();
        self.carried.clone().map(|record| record.paused_until(now))
    }

    /// Returns the plan for draining `pods`. Its deadline is the time that the drain may take.
    pub fn plan(&self, pods: &[Pod]) -> Plan {
        let time =
            self.time.map_or_else(|| Self::default_time(&self.policy), |t| t.min(MAX_GROUPS_TOTAL));
        let carried = self.carried_until_now();
        let (time, gone, groups) = match &carried {
            Some(record) => (record.budget().pods, record.report.took, &*record.report.groups),
            None => (time, Duration::ZERO, &[][..]),
        };
        let left = time.saturating_sub(gone);
        let halved;
        let policy = if self.policy.is_enabled() {
            &*self.policy
        } else {
            halved = halves(&self.policy, left);
            &halved
        };
        let priorities = GroupReport::priorities_of_ordinary_pods(groups);
        let mut plan = plan_on(pods, policy, &[], Some(left), &priorities).begun_after(gone);
        plan.extend_to(time);
        plan
    }

    fn header(&self, plan: &Plan, budget: Budget) -> ReportHeader {
        if let Some(record) = &self.carried {
            return record.header(record.report.took);
        }
        ReportHeader {
            trigger: Trigger::Drain,
            node_action: ShutdownKind::Unknown,
            boot_id: self.boot_id.clone(),
            started_at: self.clock.now(),
            budget: BudgetReport::new(budget, None),
            requested_by: self.requested_by.clone(),
            notice: None,
            endpoint_drain: Some(plan.endpoint_drain).filter(|drain| !drain.is_zero()),
            resumed: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Returns a policy in the order of `off`, which is disabled, that gives ordinary pods one half of `time` and all others
/// the other, within a policy's limits.
fn halves(off: &Policy, time: Duration) -> Policy {
    // With no time it would be disabled, too.
    let time = time.max(Duration::from_secs(1));
    let half = Duration::from_secs(time.as_secs() / 2);
    let halved = match off.groups() {
        Groups::ByRole { .. } => Policy::by_role(time, half),
        Groups::ByPriority(_) => Policy::from_periods(time, half),
    };
    halved.unwrap_or_else(|_| Policy::disabled())
}
