//! Ending all pods of a node that stays up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{
    GateReason, KillReason, NodeEnding, Pod, PodKiller, Recorder, RequestReport, ShutdownKind,
    StatusOverride, WallClock,
};

use crate::policy::LONGEST;
use crate::report::{Ended, ReportHeader};
use crate::{
    Budget, BudgetReport, GroupPeriod, Plan, Policy, ProgressPhase, ProgressSender, RunOrder,
    RunStop, ShutdownReport, Trigger, plan, run_plan,
};

#[cfg(test)]
mod tests;

/// The time of a drain where neither the policy nor the operator gives one.
const UNCONFIGURED: Duration = Duration::from_secs(60);

const MESSAGE: &str = "Pod was ended because an operator drained the node.";

/// What [`drain`] needs beside the pods.
pub struct DrainOrder {
    /// Order and time of the groups, as in a shutdown.
    pub policy: Arc<Policy>,
    /// The time for all pods; none takes the policy's. More than the policy's lets pods use more
    /// of their own grace.
    pub time: Option<Duration>,
    /// Who asked for it, for the report.
    pub requested_by: Option<RequestReport>,
    /// Takes an event when a group starts and ends.
    pub recorder: Arc<dyn Recorder>,
    /// Takes every step.
    pub progress: ProgressSender,
    /// Labels the report.
    pub clock: WallClock,
    /// The kernel's boot id, for the report.
    pub boot_id: String,
}

/// Ends all active pods in shutdown order and tells how it went.
///
/// Touches neither a login manager nor the admission gate: shut it for [`GateReason::Drain`] first, or
/// the drain follows pods that come back until its time is over. Pods turn not ready at once, and
/// stay so after the drain: lift both when the drain is to end. With a disabled policy, ordinary and
/// critical pods get half of the time each (of 60 s, if `time` is none). Firing `cancel` spares the
/// pods not asked yet. The report is not kept anywhere.
pub async fn drain<K: PodKiller>(
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
    /// What the drain will do with `pods`; its deadline is the time that the drain may take.
    pub fn plan(&self, pods: &[Pod]) -> Plan {
        let halved;
        let policy = if self.policy.is_enabled() {
            &*self.policy
        } else {
            halved = halves(self.time.unwrap_or(UNCONFIGURED));
            &halved
        };
        let time = self.time.unwrap_or(policy.requested());
        let mut plan = plan(pods, policy, Some(time));
        plan.extend_to(time);
        plan
    }
}

/// Half of the time for each, and no more than a policy can give.
fn halves(time: Duration) -> Policy {
    let seconds = i64::try_from(time.min(LONGEST).as_secs() / 2).unwrap_or(0);
    let group = |priority| GroupPeriod { priority, shutdown_grace_period_seconds: seconds };
    Policy::by_priority([group(0), group(crate::CRITICAL_PRIORITY)])
        .unwrap_or_else(|_| Policy::disabled())
}
