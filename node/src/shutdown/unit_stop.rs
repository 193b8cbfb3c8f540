//! The second line of defence: the unit is stopped because the machine goes down in a way that the login manager does
//! not announce.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use winddown_shared::{GateReason, Runtime, WayDown, instant_after};
use winddown_shutdown::UnitStop;

use super::Joined;

/// Added to the time that the policy wants; what takes longer is not waited for.
const STOP_SLACK: Duration = Duration::from_secs(10);

impl<R: Runtime> Joined<R> {
    /// Waits until the controller has ended the pods. Tells it first how the machine goes down; a run in progress is then
    /// shortened to the time that the policy wants, or that the way down leaves, counted from `since`, when the agent was asked
    /// to stop.
    pub(super) async fn end_at_unit_stop(self: Arc<Self>, way: Option<WayDown>, since: Instant) {
        let wanted = self.progress.policy_in_force(&self.policy.borrow()).delay_wanted();
        let (mut progress, mut login) = (self.progress.subscribe(), self.lock.inhibitor.state());
        // An agent that started on the way down knows that already, but not always the limit.
        let is_told = self.core.gate.reasons().contains(GateReason::UnitStop);
        let is_announced = login.borrow_and_update().preparing && !is_told;
        let stop = UnitStop::new(way.unwrap_or_default(), since, wanted, is_announced);
        let is_known = is_told || is_announced;
        if way.is_some() && (stop.is_limited || !is_known) {
            if !is_known {
                tracing::warn!("logind has not announced this shutdown: terminating the pods now");
            }
            self.unit_stop.send_replace(Some(stop));
        }
        let is_unit_stop = is_told || (way.is_some() && !is_announced);
        let over = async {
            while !progress.borrow_and_update().is_over(&login.borrow_and_update(), is_unit_stop) {
                tokio::select! {
                    Ok(()) = progress.changed() => {}
                    Ok(()) = login.changed() => {}
                    else => return,
                }
            }
        };
        // A run that learns late of a limit that is over keeps a little all the same.
        let until = instant_after(stop.since, stop.delay).max(Instant::now());
        let _ = timeout_at(until + STOP_SLACK, over).await;
    }
}
