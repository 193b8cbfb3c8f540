//! How a pod's end is asked for, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{GateReason, NodeEnding, PluginName, Pod, PodUid, RuntimePod};

/// Why a pod is asked to end. It names the controller, never the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// A controller that is none of the node's own.
    Plugin(PluginName),
}

impl KillReason {
    /// The reason in one word, as logs and answers in JSON have it: `shutdown`, or a plug-in's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Preemption => "preemption",
            Self::Eviction => "eviction",
            Self::Drain => "drain",
            Self::Operator => "operator",
            Self::Removed => "removed",
            Self::Plugin(name) => name.as_str(),
        }
    }
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
    /// The pod has not failed: it keeps its node and its phase, and starts again when the node is back. Reason and
    /// message are then those of its `Ready` condition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

// === impl StatusOverride ===

impl StatusOverride {
    /// For a pod that fails by its end. `disruption_message` adds the condition `DisruptionTarget`.
    pub fn failed(
        reason: impl Into<Arc<str>>,
        message: impl Into<Arc<str>>,
        disruption_message: Option<Arc<str>>,
    ) -> Self {
        Self { reason: reason.into(), message: message.into(), disruption_message, stays: false }
    }

    /// For a pod that stays on its node and starts again. Reason and message are those of its `Ready` condition.
    pub fn staying(reason: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        Self { stays: true, ..Self::failed(reason, message, None) }
    }
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
    /// Takes in what else was asked of the same pod: the shorter grace counts, and why it was to end first.
    pub fn join(&mut self, other: &Self) {
        self.grace = self.grace.into_iter().chain(other.grace).min();
        self.evict |= other.evict;
        if self.status.is_none() {
            self.status.clone_from(&other.status);
        }
    }

    /// Whether the pod starts again when its node is back.
    pub fn stays(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.stays)
    }

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
    /// What people should know of how it was ended: `its disruption budget refused for 6.5 s`.
    pub remark: Option<Arc<str>>,
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

impl StoppedContainer {
    /// How a kubelet or a container runtime tells the end: SIGKILL is all that is left to see of a grace that ran
    /// out, unless the kernel killed for want of memory.
    pub fn from_exit_code(name: impl Into<Arc<str>>, exit_code: i32, reason: &str) -> Self {
        Self { name: name.into(), exit_code, forced: exit_code == 137 && reason != "OOMKilled" }
    }
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

/// What runs on the node, as far as it is known at one moment.
///
/// "Nothing runs" is `known` and empty. Without `known` what is listed may run, and there may be more.
#[derive(Clone, Debug, Default)]
pub struct RunningPods {
    /// The pods that hold a place on the node, those that are ending included, in no order.
    pub pods: Vec<Pod>,
    /// What runs and is in no source: its manifest is broken or out of reach, or it is left from a pod
    /// that is gone. In no order.
    pub runtime_only: Vec<RuntimePod>,
    /// Whether the runtime has said what runs since the agent started.
    pub known: bool,
}

// === impl RunningPods ===

impl RunningPods {
    /// A node of which it is known that these pods run and nothing else.
    pub fn known(pods: Vec<Pod>) -> Self {
        Self { pods, runtime_only: Vec::new(), known: true }
    }

    /// Everything that runs, what only the runtime knows too ([`Pod::of_runtime`]). In the order of
    /// their names.
    pub fn into_pods(self) -> Vec<Pod> {
        let mut pods = self.pods;
        pods.extend(self.runtime_only.iter().map(Pod::of_runtime));
        pods.sort_unstable_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        pods
    }

    /// Whether it is known that nothing runs.
    pub fn is_known_empty(&self) -> bool {
        self.known && self.pods.is_empty() && self.runtime_only.is_empty()
    }
}

/// Ends pods. Implemented by the pod workers only.
pub trait PodKiller: Send + Sync + 'static {
    /// Ends `pod` and resolves when none of its containers runs and none will start.
    ///
    /// Works for a pod in any state: not started, running, stopping, gone; and for one that only the
    /// runtime knows ([`Pod::of_runtime`]). Dropping the future abandons the wait, not the kill.
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

    /// What runs on the node now, and whether that is all.
    fn running(&self) -> RunningPods;

    /// Changes when more is known of what runs. One that never changes is right where everything is
    /// known from the start.
    fn more_known(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    /// The pods that were not asked to end: those among which a controller chooses. What is in no
    /// source is not among them.
    fn staying_pods(&self) -> Vec<Pod> {
        self.running().pods
    }

    /// Who has asked this pod to end first; none while it is not ending, or where that is not known.
    fn ending_by(&self, uid: &PodUid) -> Option<KillReason> {
        let _ = uid;
        None
    }

    /// Whether a pod would run on through a soft-reboot of the node, as it was started.
    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        let _ = uid;
        false
    }

    /// How a pod ended whose end no agent saw, as the runtime has it; none where it runs or that is not known.
    fn unseen_end(&self, uid: &PodUid) -> impl Future<Output = Option<PodStopped>> + Send {
        let _ = uid;
        async { None }
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

    /// Tells the pods, those that come later too, that all of them are about to end. A second call by the same
    /// `reason` replaces the first; [`lame_duck`](Self::lame_duck) with `false` takes it back. Returns at once.
    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        let _ = (reason, ending);
    }

    /// Makes every pod not ready (`true`), so that load balancers turn away before the first
    /// SIGTERM; or takes that reason away again (`false`). Readiness is what the probes say again
    /// when the last reason is gone. Returns at once.
    fn lame_duck(&self, reason: GateReason, on: bool) {
        let _ = (reason, on);
    }
}

#[cfg(test)]
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
        assert_eq!(killer.running().pods.len(), 2, "it still holds its place");
    }
}
