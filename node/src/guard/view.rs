//! What the guard says: the status, the metrics, what speaks against a shutdown, and the answer to a release.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use winddown_control::ApiError;
use winddown_control::api::{self, BlockingPod, GuardStatus, ReleaseAnswer};
use winddown_shared::{LockState, Runtime};

use super::GuardedNode;
use super::holds::Guard;
use crate::api::holds_none;
use crate::links::{Objection, Observe, next_change};
use crate::metrics::{PluginGauge, ScrapedNode};
use crate::plugin::{PluginSection, ReleaseAnswers};
use crate::status_view::lock_state;

impl<R: Runtime> PluginSection for GuardedNode<R> {
    fn status(&self, status: &mut api::Status) {
        status.guard = self.shown();
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        if self.means.policy.borrow().is_empty() {
            return;
        }
        let guard = self.guard.borrow();
        let blocked = *self.means.lock.borrow() == LockState::Held;
        let gauges = [
            ("winddown_guard_blocking_pods", "Pods that block shutdowns.", guard.holding().count()),
            (
                "winddown_guard_expired_pods",
                "Running pods that no longer block shutdowns, because their time is over.",
                guard.expired().count(),
            ),
            (
                "winddown_guard_lock_held",
                "Whether the login manager refuses shutdowns for pods.",
                usize::from(blocked),
            ),
        ];
        let gauges = gauges.map(|(name, help, count)| PluginGauge::count(name, help, count));
        facts.of_plugins.extend(gauges);
    }
}

impl<R: Runtime> ReleaseAnswers for GuardedNode<R> {
    fn release(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'_, Result<ReleaseAnswer, ApiError>> {
        async move { self.release_pod(&namespace, &name).await }.boxed()
    }
}

impl<R: Runtime> Objection for GuardedNode<R> {
    fn text(&self) -> Option<String> {
        let block = self.guard.borrow().block(|at| self.wall_at(at))?;
        Some(format!("{} {}", block.who, block.why))
    }

    fn reasons(&self) -> Vec<String> {
        let past = |pod| format!("{pod} blocked shutdowns, and this one bypassed logind");
        self.guard.borrow().holding().map(|(_, hold)| past(&hold.pod)).collect()
    }
}

/// Follows the pods that hold shutdowns.
pub(super) struct Held<R: Runtime> {
    guarded: Arc<GuardedNode<R>>,
    guard: watch::Receiver<Guard>,
}

impl<R: Runtime> Held<R> {
    pub(super) fn of(guarded: &Arc<GuardedNode<R>>) -> Self {
        Self { guarded: Arc::clone(guarded), guard: guarded.guard.subscribe() }
    }
}

impl<R: Runtime> Observe<Option<String>> for Held<R> {
    fn now(&mut self) -> Option<String> {
        self.guard.mark_unchanged();
        self.guarded.text()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(next_change(&mut self.guard))
    }
}

// === impl GuardedNode ===

impl<R: Runtime> GuardedNode<R> {
    /// The pods that hold shutdowns, for the status; `None` while there are none.
    fn shown(&self) -> Option<GuardStatus> {
        let guard = self.guard.borrow();
        let pods: Vec<BlockingPod> = guard
            .holding()
            .map(|(uid, hold)| {
                let (namespace, name) = hold.pod.split_once('/').unwrap_or_default();
                BlockingPod {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: uid.to_owned(),
                    since: self.wall_at(hold.since),
                    until: self.wall_at(hold.until),
                }
            })
            .collect();
        if pods.is_empty() {
            return None;
        }
        let (state, why) = lock_state(&self.means.lock.borrow());
        Some(GuardStatus { state, why, pods })
    }

    /// Ends a pod's hold on shutdowns. Waits until the lock is released, unless other pods still hold shutdowns.
    async fn release_pod(&self, namespace: &str, name: &str) -> Result<ReleaseAnswer, ApiError> {
        let pods = self.shown().map(|status| status.pods).unwrap_or_default();
        let found = pods.iter().find(|pod| pod.namespace == namespace && pod.name == name);
        let pod = found.ok_or_else(|| holds_none(namespace, name))?;
        self.guard.send_if_modified(|guard| guard.release(&pod.uid));
        if pods.len() == 1 {
            let mut lock = self.means.lock.clone();
            let given_back = lock.wait_for(|lock| *lock != LockState::Held);
            // At most a call to the login manager, and less than the caller waits.
            let _ = tokio::time::timeout(Duration::from_secs(8), given_back).await;
        }
        let left = self.shown().map(|status| status.pods).unwrap_or_default();
        let name = |other: &BlockingPod| format!("{}/{}", other.namespace, other.name);
        Ok(ReleaseAnswer {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            still_blocked_by: left.iter().map(name).collect(),
        })
    }
}
