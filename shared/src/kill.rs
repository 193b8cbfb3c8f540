//! How a pod's end is asked for, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::{Pod, PodUid};

/// Why a pod is asked to end. It names the controller, never the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KillReason {
    /// The node goes down.
    Shutdown,
    /// A critical pod needs the room.
    Preemption,
    /// The node runs out of a resource.
    Eviction,
    /// An operator empties the node, which stays up.
    Drain,
    /// An operator ends this one pod.
    Operator,
    /// The pod left its source (manifest removed, API object deleted).
    Removed,
}

/// What a kill writes into the pod's status, and keeps there whatever the exit codes are.
///
/// The kubelet loses this when all containers exit 0 (k8s#141483).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusOverride {
    /// `status.reason`, for example `Terminated`.
    pub reason: Arc<str>,
    /// `status.message`.
    pub message: Arc<str>,
    /// Message of the `DisruptionTarget` condition (reason `TerminationByKubelet`); none adds none.
    pub disruption_message: Option<Arc<str>>,
}

/// One request to end a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillRequest {
    /// Who asks.
    pub reason: KillReason,
    /// The time between SIGTERM and SIGKILL. `None` takes the pod's own. It can only shorten what
    /// an earlier request or a deletion gave; a shorter one reaches a stop already in flight.
    /// Whole seconds are used, at least 1.
    pub grace: Option<Duration>,
    /// Marks the pod as evicted: its dead containers and logs may be removed before others'.
    pub evict: bool,
    /// What to write into the pod's status.
    pub status: Option<StatusOverride>,
    /// How long the caller waits; `None` takes the grace actually applied, half as much again, and
    /// never less than 10 s. When it passes, the caller gets [`KillError::Deadline`] and the kill
    /// goes on.
    pub deadline: Option<Instant>,
}

impl KillRequest {
    /// A request with the pod's own grace and no status of its own.
    pub fn new(reason: KillReason) -> Self {
        Self { reason, grace: None, evict: false, status: None, deadline: None }
    }
}

/// How a pod came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStopped {
    /// When the first container got SIGTERM; none when there was nothing to stop.
    pub signalled_at: Option<Instant>,
    /// When the last container was gone.
    pub stopped_at: Option<Instant>,
    /// The containers that were running when the stop began.
    pub containers: Vec<StoppedContainer>,
}

impl PodStopped {
    /// Whether any container had to be killed because its grace ran out.
    pub fn forced(&self) -> bool {
        self.containers.iter().any(|c| c.forced)
    }
}

/// One container's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedContainer {
    /// The container's name in the pod's spec.
    pub name: Arc<str>,
    /// Exit code as Kubernetes shows it: 128 + signal for a signal's victim.
    pub exit_code: i32,
    /// SIGKILL was needed: the grace ran out.
    pub forced: bool,
}

/// Why [`PodKiller::kill_pod`] could not say that the pod is gone.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillError {
    /// The wait is over and containers still run. The kill goes on.
    #[error("pod {pod} still runs after {waited:?}: {}", .still_running.join(", "))]
    Deadline {
        /// `namespace/name`.
        pod: Arc<str>,
        /// How long the caller waited.
        waited: Duration,
        /// Names of the containers last seen running; empty when the runtime did not answer.
        still_running: Vec<String>,
    },
    /// The pod workers are gone, the agent is ending.
    #[error("pod {pod} was not ended: the pod workers have shut down")]
    WorkersGone {
        /// `namespace/name`.
        pod: Arc<str>,
    },
}

/// Ends pods. Implemented by the pod workers and by nobody else.
pub trait PodKiller: Send + Sync + 'static {
    /// Ends `pod` and resolves when none of its containers runs and none will start.
    ///
    /// Works for a pod in any state: not started, running, stopping, gone. Dropping the future
    /// abandons the wait, not the kill.
    ///
    /// # Errors
    /// [`KillError::Deadline`] when containers still run at the deadline; the kill goes on.
    fn kill_pod(
        &self,
        pod: Pod,
        request: KillRequest,
    ) -> impl Future<Output = Result<Arc<PodStopped>, KillError>> + Send;

    /// Asks for the same and does not wait for it: when it returns, the pod is ending.
    fn begin_kill(&self, pod: Pod, request: KillRequest) {
        // The first poll asks; dropping the future after that abandons the wait only.
        let _ = self.kill_pod(pod, request).now_or_never();
    }

    /// The pods that hold a place on the node now, those that are ending included, in no order.
    fn active_pods(&self) -> Vec<Pod>;

    /// The active pods that nobody has asked to end: those among which a controller chooses.
    fn staying_pods(&self) -> Vec<Pod> {
        self.active_pods()
    }

    /// Waits until a stopped pod holds nothing of the host any more (sandbox, cgroup, mounts), at
    /// most until `deadline`.
    ///
    /// Answers with the mount points that are left at that time; none left means released. When it
    /// cannot be said what is mounted, the only entry is `unknown: ` and why. A pod that is not
    /// known holds nothing. Dropping the future abandons the wait, not the unmounting.
    fn volumes_released(
        &self,
        uid: &PodUid,
        deadline: Instant,
    ) -> impl Future<Output = Vec<String>> + Send {
        let _ = (uid, deadline);
        async { Vec::new() }
    }

    /// Makes every pod not ready (`true`), so that whoever balances load turns away before the
    /// first SIGTERM; or lets readiness be what the probes say again (`false`). Returns at once.
    fn lame_duck(&self, on: bool) {
        let _ = on;
    }
}

#[cfg(all(test, feature = "fake"))]
mod tests {
    use super::*;
    use crate::fake::{FakeKiller, pod};

    #[tokio::test(start_paused = true)]
    async fn a_kill_that_is_begun_is_asked_for_at_once_and_is_no_choice_for_others() {
        let killer = FakeKiller::with([pod("a"), pod("b")]);
        killer.takes(pod("a").uid(), Duration::from_secs(1));
        killer.begin_kill(pod("a"), KillRequest::new(KillReason::Preemption));
        assert_eq!(killer.calls().len(), 1);
        let staying: Vec<PodUid> = killer.staying_pods().iter().map(|p| p.uid().clone()).collect();
        assert_eq!(staying, [pod("b").uid().clone()]);
        assert_eq!(killer.active_pods().len(), 2, "it still holds its place");
    }
}
