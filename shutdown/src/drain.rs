//! Drains a node: stops all pods while the node stays up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    GateReason, KillReason, NodeEnding, Pod, Recorder, RequestReport, ShutdownKind, StatusOverride,
    WallClock,
};

use crate::EndingPods;
use crate::policy::MAX_GROUPS_TOTAL;
use crate::report::{Ended, ReportHeader};
use crate::{
    Budget, BudgetReport, GroupPeriod, Plan, Policy, ProgressPhase, ProgressSender, RunOrder,
    RunStop, ShutdownReport, Trigger, plan, run_plan,
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
    /// The kernel's boot id, for the report.
    pub boot_id: String,
}

/// Stops all active pods in shutdown order and returns a report.
///
/// This touches neither a login manager nor the admission gate: close the gate for [`GateReason::Drain`]
/// first, or the drain chases pods that come back until its time is over. Pods turn not ready at once
/// and stay so afterwards; undo both to end the drain. With a disabled policy, ordinary and critical pods
/// get half of the time each (of 60 s if `time` is none). Cancelling `cancel` spares the pods that have
/// not been requested to stop yet. The report is not stored anywhere.
pub async fn drain<K: EndingPods>(
    killer: &Arc<K>,
    order: DrainOrder,
    cancel: &CancellationToken,
) -> ShutdownReport {
    let started = Instant::now();
    let started_at = order.clock.now();
    let plan = order.plan(&killer.running().into_pods());
    let budget = Budget::of_drain(&order.policy, plan.deadline);
    let endpoint_drain = Some(plan.endpoint_drain).filter(|drain| !drain.is_zero());
    let header = ReportHeader {
        trigger: Trigger::Drain,
        node_action: ShutdownKind::Unknown,
        boot_id: order.boot_id,
        started_at,
        budget: BudgetReport::new(budget, None),
        requested_by: order.requested_by,
        notice: None,
        endpoint_drain,
        resumed: Vec::new(),
        warnings: Vec::new(),
    };
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
        requested_by: header.requested_by.clone(),
        notice: None,
    };
    killer.announce(GateReason::Drain, ending);
    killer.lame_duck(GateReason::Drain, true);
    let run = run_plan(killer, plan, &run_order, cancel).await;
    order.progress.phase(match run.stop {
        RunStop::Cancelled => {
            killer.lame_duck(GateReason::Drain, false);
            ProgressPhase::Cancelled
        }
        _ => ProgressPhase::Ended,
    });
    let ended = Ended { at: order.clock.now(), took: started.elapsed() };
    ShutdownReport::new(header, run, ended)
}

impl DrainOrder {
    /// Returns the time that a drain may take if the operator gives none.
    pub fn default_time(policy: &Policy) -> Duration {
        if policy.is_enabled() { policy.requested() } else { DEFAULT_DRAIN_TIME }
    }

    /// Returns the plan for draining `pods`. Its deadline is the time that the drain may take.
    pub fn plan(&self, pods: &[Pod]) -> Plan {
        let time =
            self.time.map_or_else(|| Self::default_time(&self.policy), |t| t.min(MAX_GROUPS_TOTAL));
        let halved;
        let policy = if self.policy.is_enabled() {
            &*self.policy
        } else {
            halved = halves(time);
            &halved
        };
        let mut plan = plan(pods, policy, Some(time));
        plan.extend_to(time);
        plan
    }
}

/// Returns a policy that gives ordinary and critical pods half of `time` each, within a policy's limits.
fn halves(time: Duration) -> Policy {
    let seconds = i64::try_from(time.as_secs() / 2).unwrap_or(0);
    let group = |priority| GroupPeriod { priority, shutdown_grace_period_seconds: seconds };
    Policy::by_priority([group(0), group(crate::CRITICAL_PRIORITY)])
        .unwrap_or_else(|_| Policy::disabled())
}
