//! The verdict on the node, as a snapshot and as the cluster and the journal are told it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval, sleep_until};
use winddown_control::api::{Protection, ProtectionReason, ProtectionState};
use winddown_control::protection::{ProtectionFacts, protection};
use winddown_shared::{LockState, Runtime};
use winddown_shutdown::Trigger;

use super::{Joined, role};
use crate::links::next_change;
use crate::plugin::PluginSection as _;
use crate::status_view::lock_state;

/// How often to look at what nothing announces: the kubelet's configuration, and logind's delay.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How long a verdict that is not good has to last before it counts: a restart of logind or of the agent is short.
const COUNTS_AFTER: Duration = Duration::from_secs(60);

impl<R: Runtime> Joined<R> {
    /// The verdict on this node as of now.
    pub(super) fn protection(&self) -> Protection {
        protection(&self.protection_facts())
    }

    fn protection_facts(&self) -> ProtectionFacts {
        let said = self.lock.inhibitor.state();
        let (said, policy) = (said.borrow(), self.policy.borrow());
        ProtectionFacts {
            role: role(&self.core),
            agent_runs: Some(true),
            agent_lock: Some(matches!(said.lock, LockState::Held | LockState::Released)),
            agent_wants: if policy.is_enabled() { policy.delay_wanted() } else { Duration::ZERO },
            delay: said.delay,
            is_rehearsal: said.is_rehearsal || self.trigger == Trigger::Drill,
            api_server: (self.api_server)(),
            kubelet: *self.kubelet.found().borrow(),
        }
    }

    /// Publishes and logs the verdict that counts, whoever asks for the status.
    pub(super) async fn follow_verdict(self: Arc<Self>) {
        let (mut changes, mut policy) = (self.core.changes.subscribe(), self.policy.clone());
        let mut looks = interval(LOOK_INTERVAL);
        let (mut judged, mut bad_since, mut counts_at) = (None, None, None);
        loop {
            tokio::select! {
                // Returns at once the first time: nothing is judged before the first look.
                _ = looks.tick() => self.refresh().await,
                Ok(()) = changes.changed(), if judged.is_some() => {}
                () = next_change(&mut policy), if judged.is_some() => {}
                () = sleep_until(counts_at.unwrap_or_else(Instant::now)), if counts_at.is_some() => {}
            }
            changes.mark_unchanged();
            let facts = self.protection_facts();
            let is_due = counts_at.is_some_and(|at| at <= Instant::now());
            if judged.replace(facts) == Some(facts) && !is_due {
                continue;
            }
            let verdict = protection(&facts);
            bad_since = match bad_since {
                _ if verdict.state == ProtectionState::Protected => None,
                // Another bad state has to last as long: a node that is limited also loses its lock for a moment.
                Some((state, since)) if state == verdict.state => Some((state, since)),
                _ => Some((verdict.state, Instant::now())),
            };
            counts_at =
                bad_since.map(|(_, since)| since + COUNTS_AFTER).filter(|at| *at > Instant::now());
            if counts_at.is_none() {
                self.publish(verdict);
            }
        }
    }

    fn publish(&self, mut verdict: Protection) {
        let (_, why) = lock_state(&self.lock.inhibitor.state().borrow().lock);
        if let (ProtectionReason::LockNotHeld, Some(why)) = (verdict.reason, why) {
            verdict.text.push_str(&format!(" ({why})"));
        }
        self.verdict.send_if_modified(|told| {
            let is_news = verdict.log_after(told.as_ref());
            *told = Some(verdict);
            is_news
        });
    }
}

#[cfg(test)]
mod tests;
